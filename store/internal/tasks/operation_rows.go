package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// operationsOf returns the table of a tenant's operations.
func operationsOf(tenant string) string { return postgres.Quote(schema.Of(tenant)) + ".operations" }

// operationFilter and operationOptions are the documents in the table.
type (
	operationFilter struct {
		Status asyncflow.Status `json:"status,omitempty"`
		Stage  string           `json:"stage,omitempty"`
		Error  string           `json:"error,omitempty"`
		Since  time.Time        `json:"since,omitzero"`
		Until  time.Time        `json:"until,omitzero"`

		NoChildren bool `json:"no_children,omitempty"`

		AllTypes   bool             `json:"all_types,omitempty"`
		EndedSince time.Time        `json:"ended_since,omitzero"`
		EndedUntil time.Time        `json:"ended_until,omitzero"`
		Attempts   int              `json:"attempts,omitempty"`
		Code       string           `json:"code,omitempty"`
		FlowKey    string           `json:"flow_key,omitempty"`
		Worker     string           `json:"worker,omitempty"`
		Key        string           `json:"key,omitempty"`
		Parent     asyncflow.TaskID `json:"parent,omitzero"`
		Labels     LabelFilter      `json:"labels,omitzero"`

		IDs         []asyncflow.TaskID `json:"ids,omitempty"`
		Fingerprint string             `json:"fingerprint,omitempty"`
	}
	operationOptions struct {
		Reason    string             `json:"reason,omitempty"`
		Priority  asyncflow.Priority `json:"priority,omitempty"`
		FromStage string             `json:"from_stage,omitempty"`
		Pace      float64            `json:"pace,omitempty"`
		RunAt     time.Time          `json:"run_at,omitzero"`
		By        string             `json:"by,omitempty"`
		StartBy   asyncflow.Deadline `json:"start_by,omitzero"`
		EndBy     asyncflow.Deadline `json:"end_by,omitzero"`
		// ContextPatch is the text of a document, so that it stays as it is written.
		ContextPatch string `json:"context_patch,omitempty"`
	}
)

func (s *operations) insertOperation(ctx context.Context, tenant string, o Operation) error {
	f := o.Filter
	filter, err := json.Marshal(operationFilter{f.Status, f.Stage, f.Error, f.Since, f.Until,
		f.NoChildren, o.AllTypes, f.EndedSince, f.EndedUntil, f.Attempts, f.Code, f.FlowKey,
		f.Worker, f.Key, f.Parent, f.Labels, f.IDs, f.Fingerprint})
	if err != nil {
		return err
	}
	options, err := json.Marshal(operationOptions{o.Reason, o.Priority, o.FromStage, o.Pace,
		o.RunAt, o.By, o.StartBy, o.EndBy, string(o.ContextPatch)})
	if err != nil {
		return err
	}
	return audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		noteOperation(audit.CallOf(ctx), o)
		if err := checkRunning(ctx, tx, tenant, o); err != nil {
			return err
		}
		_, err := tx.Exec(ctx,
			`INSERT INTO `+operationsOf(tenant)+` (id, kind, type, filter, options, state, total,
			  position, next_at, created_at, finished_at)
			VALUES ($1, $2, $3, $4::text::json, $5::text::json, $6, $7, $8, $9, $10, $11)`,
			o.ID, o.storedKind(), f.Type, string(filter), string(options), string(o.State), o.Total,
			o.position, o.nextAt, o.CreatedAt, postgres.OrNull(o.FinishedAt))
		return err
	})
}

// MaxRunningCounts is how many counts of a tenant may run at once: to begin one costs nothing, and
// all of them take turns with the operations of other tenants.
const MaxRunningCounts = 2

// checkRunning refuses an operation while too many of its kind are running.
func checkRunning(ctx context.Context, tx pgx.Tx, tenant string, o Operation) error {
	if o.Kind != CountAll && o.Kind != RerunTasks {
		return nil
	}
	b := &pgx.Batch{}
	catalog.QueueLocks(b, config.NewTables(tenant, config.SharedSet), catalog.CountsLock, 0)
	var running int
	var first string
	b.Queue(`SELECT count(*), coalesce(min(id::text), '') FROM `+operationsOf(tenant)+`
		WHERE kind = ANY ($1) AND state = 'running'`,
		[]string{string(o.Kind), string(o.Kind) + narrowed, string(o.Kind) + chosen}).
		QueryRow(func(row pgx.Row) error { return row.Scan(&running, &first) })
	err := tx.SendBatch(ctx, b).Close()
	switch {
	case err != nil:
		return err
	case o.Kind == RerunTasks && running > 0:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"the operation %s runs tasks of the tenant again: no other one may at once. Wait for "+
				"it, or stop it", first)
	case o.Kind == CountAll && running >= MaxRunningCounts:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"%d counts of the tenant are running: no more may at once. Wait for one, or stop it",
			running)
	}
	return nil
}

// OperationsKept is how long operations are kept after their end.
const OperationsKept = 30 * 24 * time.Hour

// idBytes is the most bytes that an id takes in a page of operations, with quotes and comma.
const idBytes = 103

const operationColumns = `o.id::text, o.kind, o.type, o.filter, o.options, o.state, o.total, o.done,
  o.skipped, coalesce(o.error, ''), o.created_at, o.finished_at, o.position, o.next_at`

// OperationPage returns up to limit of a tenant's operations after a place, newest first, and
// reports whether there are more. It lists running operations, and all of the last 30 days.
func (s *operations) OperationPage(
	ctx context.Context, tenant string, after postgres.Place, limit int,
) (page []Operation, more bool, err error) {
	rows, _ := s.core.DB(tenant).Query(ctx,
		`SELECT `+operationColumns+` FROM `+operationsOf(tenant)+` o
		WHERE (o.state = 'running' OR o.created_at > $1)
		  AND ($2::timestamptz IS NULL OR (o.created_at, o.id) < ($2, $3::uuid))
		ORDER BY o.created_at DESC, o.id DESC LIMIT $4`,
		s.core.Clock.Now().Add(-OperationsKept), postgres.OrNull(after.At),
		postgres.OrNull(after.ID), limit+1)
	page, more, err = postgres.CollectPage(rows, limit, postgres.PageBytes,
		func(row pgx.CollectableRow) (Operation, error) { return scanOperation(row) },
		func(o Operation) int {
			f := o.Filter
			return len(f.Error) + len(f.FlowKey) + len(f.Worker) + len(f.Key) + len(o.Reason) +
				len(o.Error) + len(f.Fingerprint) + len(o.ContextPatch) + idBytes*len(f.IDs)
		})
	return page, more, postgres.Wrap(err, "OperationPage(%q)", tenant)
}

// Operation returns one operation; CodeNotFound when there is none. id is a UUID.
func (s *operations) Operation(ctx context.Context, tenant, id string) (Operation, error) {
	return s.oneOperation(ctx, tenant, id,
		`SELECT `+operationColumns+` FROM `+operationsOf(tenant)+` o WHERE o.id = $1::uuid`, id)
}

// StopOperation stops an operation and returns it. It waits for a step under way; afterwards
// the operation changes no task. Only a rerun doesn't wait while it submits the tasks of a step. An
// operation that is over is returned as it is.
func (s *operations) StopOperation(ctx context.Context, tenant, id string) (Operation, error) {
	err := audit.Do(ctx, s.core, tenant, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE `+operationsOf(tenant)+`
			SET state = 'stopped', finished_at = $2
			WHERE id = $1::uuid AND state = 'running'`, id, s.core.Clock.Now())
		if err == nil && tag.RowsAffected() == 0 { // it is over, or doesn't exist
			return postgres.ErrSame
		}
		return err
	})
	if err != nil && !errors.Is(err, postgres.ErrSame) {
		return Operation{}, postgres.Wrap(err, "StopOperation(%q, %q)", tenant, id)
	}
	return s.Operation(ctx, tenant, id)
}

func (s *operations) oneOperation(
	ctx context.Context, tenant, id, sql string, args ...any,
) (Operation, error) {
	all, err := s.readOperations(ctx, tenant, sql, args...)
	if err == nil && len(all) == 0 {
		err = asyncflow.Errorf(asyncflow.CodeNotFound, "there is no operation %q", id)
	}
	if err != nil {
		return Operation{}, postgres.Wrap(err, "Operation(%q, %q)", tenant, id)
	}
	return all[0], nil
}

func (s *operations) readOperations(
	ctx context.Context, tenant, sql string, args ...any,
) ([]Operation, error) {
	rows, _ := s.core.DB(tenant).Query(ctx, sql, args...)
	return pgx.CollectRows(rows,
		func(row pgx.CollectableRow) (Operation, error) { return scanOperation(row) })
}

// scanOperation reads operationColumns, and the columns after them into more.
func scanOperation(row pgx.CollectableRow, more ...any) (o Operation, err error) {
	var f operationFilter
	var options operationOptions
	var finished *time.Time
	err = row.Scan(append([]any{&o.ID, &o.Kind, &o.Filter.Type, &f, &options, &o.State, &o.Total,
		&o.Done, &o.Skipped, &o.Error, &o.CreatedAt, &finished, &o.position, &o.nextAt},
		more...)...)
	o.Filter.Status = f.Status
	o.Filter.Stage = f.Stage
	o.Filter.Error = f.Error
	o.Filter.Since = f.Since
	o.Filter.Until = f.Until
	o.Filter.NoChildren = f.NoChildren
	o.Filter.EndedSince = f.EndedSince
	o.Filter.EndedUntil = f.EndedUntil
	o.Filter.Attempts = f.Attempts
	o.Filter.Code = f.Code
	o.Filter.FlowKey = f.FlowKey
	o.Filter.Worker = f.Worker
	o.Filter.Key = f.Key
	o.Filter.Parent = f.Parent
	o.Filter.Labels = f.Labels
	o.Filter.Fingerprint = f.Fingerprint
	o.AllTypes = f.AllTypes
	o.Filter.IDs = f.IDs
	o.Kind = OperationKind(strings.TrimSuffix(strings.TrimSuffix(string(o.Kind), narrowed), chosen))
	o.Reason = options.Reason
	o.FromStage = options.FromStage
	o.Pace = options.Pace
	o.By = options.By
	o.Priority = options.Priority
	o.RunAt = options.RunAt
	o.StartBy = options.StartBy
	o.EndBy = options.EndBy
	if options.ContextPatch != "" {
		o.ContextPatch = json.RawMessage(options.ContextPatch)
	}
	o.FinishedAt = postgres.OrZero(finished)
	return o, err
}

// ForgetOperations deletes a tenant's operations that ended more than 30 days ago, and returns
// how many it deleted.
func (s *operations) ForgetOperations(ctx context.Context, tenant string) (int, error) {
	tag, err := s.core.DB(tenant).Exec(ctx,
		`DELETE FROM `+operationsOf(tenant)+` WHERE state <> 'running' AND finished_at < $1`,
		s.core.Clock.Now().Add(-OperationsKept))
	return int(tag.RowsAffected()), postgres.Wrap(err, "ForgetOperations(%q)", tenant)
}

// noteOperation adds an operation's id and number of tasks.
func noteOperation(a *audit.Call, o Operation) {
	a.Note("operation", o.ID)
	a.Note("total", o.Total)
}
