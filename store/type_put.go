package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// StoredType is a task type with its state and its times.
type StoredType struct {
	asyncflow.TaskType
	PauseState
	CreatedAt, UpdatedAt time.Time
}

// PutTaskType creates a task type with its tables, or makes a new version of
// it; the same document again changes nothing. A stage in which live tasks stand
// can't be removed without a mapping: CodeConflict.
func (s *Store) PutTaskType(ctx context.Context, tenant string, t asyncflow.TaskType) (_ StoredType, created bool, err error) {
	return s.putTaskType(ctx, tenant, t, false)
}

// CheckTaskType is PutTaskType for show: it returns what that would return, and
// changes nothing.
func (s *Store) CheckTaskType(ctx context.Context, tenant string, t asyncflow.TaskType) (_ StoredType, created bool, err error) {
	return s.putTaskType(ctx, tenant, t, true)
}

// errDry ends a transaction that was for show.
var errDry = errors.New("nothing is to be changed")

func (s *Store) putTaskType(ctx context.Context, tenant string, t asyncflow.TaskType, dry bool) (stored StoredType, created bool, err error) {
	err = s.change(ctx, tenant, func(tx pgx.Tx) error {
		var g growth
		if stored, g, err = writeTaskType(ctx, tx, tenant, t, s.Clock.Now()); err == nil {
			err = s.checkConfig(ctx, tx, tenant, g)
		}
		created = g.one != ""
		if err == nil && dry {
			return errDry
		}
		ActOf(ctx).noteVersion(stored.Version, created)
		return err
	})
	if sqlState(err) == "42P07" || sqlState(err) == "23505" { // another has just created it: change that one
		return s.putTaskType(ctx, tenant, t, dry)
	}
	if err == errDry {
		err = nil
	}
	return stored, created, wrap(err, "PutTaskType(%q, %q)", tenant, t.Name)
}

// writeTaskType creates or changes a task type and returns it as it is then.
func writeTaskType(
	ctx context.Context,
	tx pgx.Tx,
	tenant string,
	t asyncflow.TaskType,
	now time.Time,
) (stored StoredType, g growth, err error) {
	spec, err := json.Marshal(t)
	if err != nil {
		return stored, g, err
	}
	g.bytes = docBytes(t, t.StageMapping)
	old, err := readTaskType(ctx, tx, tenant, t.Name, "FOR UPDATE")
	switch {
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		g.one = asyncflow.QuotaTaskTypes
		err = createTaskType(ctx, tx, tenant, t, spec, now)
	case err == nil:
		t = t.After(old.TaskType)
		g.bytes = docBytes(t, t.StageMapping) - docBytes(old.TaskType, old.StageMapping)
		if err = t.Validate(); err == nil { // there may be too many mappings by now
			err = checkRemovedStages(ctx, tx, tenant, old.TaskType, t)
		}
		if err == nil && !sameSpec(old.TaskType, t) {
			err = updateTaskType(ctx, tx, tenant, t, spec, now)
		}
	}
	if err != nil {
		return stored, g, err
	}
	stored, err = readTaskType(ctx, tx, tenant, t.Name, "")
	return stored, g, err
}

func updateTaskType(ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType, spec []byte, now time.Time) error {
	mapping, err := json.Marshal(t.StageMapping) // its keys come out sorted
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE `+quote(schemaOf(tenant))+`.task_types
		SET spec = $2::text::json, stage_mapping = $3::text::json, version = version + 1, updated_at = $4 WHERE name = $1`,
		t.Name, string(spec), string(mapping), now)
	return err
}

// sameSpec tells whether two versions of a type say the same.
func sameSpec(a, b asyncflow.TaskType) bool {
	docA, errA := json.Marshal(a)
	docB, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(docA) == string(docB) && maps.Equal(a.StageMapping, b.StageMapping)
}

func createTaskType(ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType, spec []byte, now time.Time) error {
	schema := quote(schemaOf(tenant))
	var position int
	err := tx.QueryRow(ctx, `
		INSERT INTO `+schema+`.task_types (name, version, spec, first_pos, begin_pos, end_pos, created_at, updated_at)
		SELECT $1, 1, $2, p, p, p, $3, $3
		FROM (SELECT coalesce(max(end_pos), 0) + 1 AS p FROM `+schema+`.retired_types WHERE name IN ($1, $4)) r
		RETURNING end_pos`, t.Name, string(spec), now, everyType).Scan(&position)
	if err != nil {
		return err
	}
	names := newTables(tenant, t.Name)
	for _, ddl := range names.createType() {
		if _, err := tx.Exec(ctx, ddl); err != nil {
			return err
		}
	}
	return names.openRoll(ctx, tx, position, now)
}

// checkRemovedStages refuses to remove a stage in which live tasks stand and that is
// mapped to none.
func checkRemovedStages(ctx context.Context, tx pgx.Tx, tenant string, old, t asyncflow.TaskType) error {
	removed := t.Homeless(old)
	if len(removed) == 0 {
		return nil
	}
	at, err := readPositions(ctx, tx, tenant, t.Name)
	if err != nil {
		return err
	}
	names := newTables(tenant, t.Name)
	if err := names.stop(ctx, tx, at); err != nil {
		return err
	}
	stage, err := names.liveStage(ctx, tx, at, removed)
	if err != nil || stage == "" {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeConflict, Message: fmt.Sprintf("stage %q can't be removed: live tasks stand in it; stage_mapping can say where they go on", stage),
		Fields: []asyncflow.FieldError{{Field: "stages", Message: fmt.Sprintf("lacks %q, in which live tasks stand", stage)}}}
}

// positions are those of a type's rolls.
type positions struct{ first, begin, end int }

func readPositions(ctx context.Context, q querier, tenant, name string) (p positions, err error) {
	err = q.QueryRow(ctx, `SELECT first_pos, begin_pos, end_pos FROM `+quote(schemaOf(tenant))+`.task_types WHERE name = $1`, name).
		Scan(&p.first, &p.begin, &p.end)
	return p, err
}

// stop keeps the token rows of a type where they are until the transaction ends:
// nothing is submitted, leased or settled meanwhile; it waits.
func (t *tables) stop(ctx context.Context, tx pgx.Tx, at positions) error {
	all := t.tokenTables(at)
	for p := at.begin; p <= at.end; p++ {
		all = append(all, t.task(p))
	}
	if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2s'`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `LOCK TABLE `+strings.Join(all, ", ")+` IN SHARE ROW EXCLUSIVE MODE`)
	return err
}

// tokenTables are the tables in which live tasks have a row.
func (t *tables) tokenTables(at positions) []string {
	var all []string
	for p := at.begin; p <= at.end; p++ {
		all = append(all, t.ready(p))
	}
	return append(all, t.lease, t.wait)
}

// liveStage returns a stage in which a live task stands, or "": one of those given,
// or (nil) any. Call stop before: a task may be on its way from one table to another.
func (t *tables) liveStage(ctx context.Context, tx pgx.Tx, at positions, stages []string) (stage string, err error) {
	var selects []string
	for _, table := range t.tokenTables(at) {
		selects = append(selects, `(SELECT stage FROM `+table+` WHERE $1::text[] IS NULL OR stage = ANY ($1) LIMIT 1)`)
	}
	err = tx.QueryRow(ctx, strings.Join(selects, " UNION ALL ")+" LIMIT 1", stages).Scan(&stage)
	if err == pgx.ErrNoRows {
		err = nil
	}
	return stage, err
}

// DeleteTaskType drops a task type with its tables and endpoints. While live
// tasks exist it is refused: CodeConflict.
func (s *Store) DeleteTaskType(ctx context.Context, tenant, name string) error {
	err := s.change(ctx, tenant, func(tx pgx.Tx) error {
		if _, err := readTaskType(ctx, tx, tenant, name, "FOR UPDATE"); err != nil {
			return err
		}
		at, err := readPositions(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		names := newTables(tenant, name)
		if err := names.stop(ctx, tx, at); err != nil {
			return err
		}
		stage, err := names.liveStage(ctx, tx, at, nil)
		if err != nil {
			return err
		}
		if stage != "" {
			return asyncflow.Errorf(asyncflow.CodeConflict, "task type %s has live tasks (in stage %s): it can be deleted when they are final", name, stage)
		}
		return names.retire(ctx, tx, at)
	})
	return wrap(err, "DeleteTaskType(%q, %q)", tenant, name)
}

// retire drops a type's tables and rows, and keeps how far its positions went.
func (t *tables) retire(ctx context.Context, tx pgx.Tx, at positions) error {
	if _, err := tx.Exec(ctx, t.drop(at)); err != nil {
		return err
	}
	if err := t.dropTallies(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO `+t.qualify("retired_types")+` (name, end_pos) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET end_pos = excluded.end_pos`, t.name, at.end); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM `+t.qualify("flow_blocks")+` WHERE type = $1`, t.name); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM `+t.qualify("task_types")+` WHERE name = $1`, t.name)
	return err
}

// TaskType returns one task type; CodeNotFound when there is none.
func (s *Store) TaskType(ctx context.Context, tenant, name string) (StoredType, error) {
	return readTaskType(ctx, s.of(tenant), tenant, name, "")
}

// TypePage returns up to limit task types of a tenant by name, those after a name, and
// whether there are more.
func (s *Store) TypePage(
	ctx context.Context,
	tenant, after string,
	limit int,
) (page []StoredType, more bool, err error) {
	rows, err := s.of(tenant).Query(ctx, taskTypeColumns+quote(schemaOf(tenant))+`.task_types
		WHERE name > $1 ORDER BY name LIMIT $2`, after, limit+1)
	if err == nil {
		page, more, err = collectPage(
			rows,
			limit,
			PageBytes,
			scanTaskType,
			func(t StoredType) int { return docBytes(t.TaskType, t.StageMapping) },
		)
	}
	return page, more, wrap(err, "TypePage(%q)", tenant)
}

func readTaskTypes(ctx context.Context, q querier, tenant string) ([]StoredType, error) {
	rows, err := q.Query(ctx, taskTypeColumns+quote(schemaOf(tenant))+`.task_types ORDER BY name`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanTaskType)
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func readTaskType(ctx context.Context, q querier, tenant, name, lock string) (StoredType, error) {
	rows, err := q.Query(ctx, taskTypeColumns+quote(schemaOf(tenant))+`.task_types WHERE name = $1 `+lock, name)
	if err != nil {
		return StoredType{}, wrap(err, "readTaskType(%q, %q)", tenant, name)
	}
	t, err := pgx.CollectExactlyOneRow(rows, scanTaskType)
	if err == pgx.ErrNoRows {
		return StoredType{}, unknownType(name)
	}
	return t, wrap(err, "readTaskType(%q, %q)", tenant, name)
}

const taskTypeColumns = `SELECT name, version, spec, coalesce(stage_mapping, '{}'), paused_at, coalesce(pause_reason, ''),
	resumed_at, coalesce(ramp_seconds, 0), created_at, updated_at FROM `

func scanTaskType(row pgx.CollectableRow) (t StoredType, err error) {
	var spec []byte
	var paused, resumed *time.Time
	var ramp float64
	if err := row.Scan(&t.Name, &t.Version, &spec, &t.StageMapping, &paused, &t.PauseReason, &resumed, &ramp, &t.CreatedAt, &t.UpdatedAt); err != nil {
		return t, err
	}
	t.PausedAt, t.ResumedAt, t.Ramp = orZero(paused), orZero(resumed), time.Duration(ramp*float64(time.Second))
	name, version := t.Name, t.Version
	err = json.Unmarshal(spec, &t.TaskType)
	t.Name, t.Version = name, version
	t.TaskType = t.TaskType.WithDefaults() // of what older versions didn't know
	return t, err
}

// change runs do in a transaction that also marks the tenant's configuration as
// changed and writes the act of the context, reads the configuration again here, and
// tells the other nodes.
func (s *Store) change(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	return s.changeBy(ctx, tenant, tenant, do)
}

// changeBase is change for what stands in the schema asyncflow.
func (s *Store) changeBase(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	return s.changeBy(ctx, "", tenant, do)
}

// nextVersion is the next version of a tenant's configuration. As it is a time, a database that
// has gone back never comes to a version again that a node knows already, but with another content.
const nextVersion = `greatest(version + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`

// changeBy is change in a transaction of a tenant's, or of nobody's.
func (s *Store) changeBy(ctx context.Context, whose, tenant string, do func(pgx.Tx) error) error {
	err := s.actingThen(ctx, whose, do, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE asyncflow.tenants SET version = `+nextVersion+` WHERE slug = $1`, tenant); err != nil {
			return err
		}
		if !s.cfg.Notify {
			return nil
		}
		_, err := tx.Exec(ctx, `SELECT pg_notify($1, $2)`, configChannel, tenant)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.Catalog.RefreshTenant(ctx, tenant); err != nil { // the change is made, and is seen a second later
		s.log.Warn("can't refresh the catalog", "error", err)
	}
	return nil
}
