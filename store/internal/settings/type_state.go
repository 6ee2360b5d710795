package settings

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// TaskType returns one task type; CodeNotFound when there is none.
func (s *Settings) TaskType(ctx context.Context, tenant, name string) (catalog.StoredType, error) {
	return catalog.ReadTaskType(ctx, s.core.DB(tenant), tenant, name, "")
}

// TypePage returns up to limit task types of a tenant after a name, by name, and reports whether
// there are more.
func (s *Settings) TypePage(
	ctx context.Context, tenant, after string, limit int,
) (page []catalog.StoredType, more bool, err error) {
	rows, _ := s.core.DB(tenant).Query(ctx, catalog.TaskTypeColumns+
		postgres.Quote(schema.Of(tenant))+`.task_types
		WHERE name > $1 ORDER BY name LIMIT $2`, after, limit+1)
	page, more, err = catalog.CollectPage(rows, limit, catalog.PageBytes, catalog.ScanTaskType,
		func(t catalog.StoredType) int { return docBytes(t.TaskType, t.StageMapping) })
	return page, more, postgres.Wrap(err, "TypePage(%q)", tenant)
}

// Pause stops the leases of a task type and returns the type. A type that is already paused
// keeps its time and reason. Once Pause has returned, this node begins no lease of the type;
// other nodes learn of it within about a second.
func (s *Settings) Pause(
	ctx context.Context, tenant, name, reason string,
) (catalog.StoredType, error) {
	t, err := s.setPause(ctx, tenant, name, `SET paused_at = $2, pause_reason = nullif($3, '')
		WHERE name = $1 AND paused_at IS NULL`, s.core.Clock.Now(), reason)
	if err != nil {
		return t, err
	}
	// Did the catalog fail to read the change?
	if known, err := s.core.Catalog.Type(tenant, name); err == nil && !known.Paused() && t.Paused() {
		if err := s.core.Catalog.RefreshTenant(ctx, tenant); err != nil {
			return t, &asyncflow.Error{
				Code: asyncflow.CodeUnavailable, RetryAfter: catalog.CatalogRetry, Err: err,
				Message: "the task type is paused, but this node can't read that yet " +
					"and may go on with it; pause it again"}
		}
	}
	return t, nil
}

// Resume starts the leases of a paused task type again, from few to all over the time of the
// ramp, and returns the type. It doesn't change a type that is not paused.
func (s *Settings) Resume(
	ctx context.Context, tenant, name string, ramp time.Duration,
) (catalog.StoredType, error) {
	return s.setPause(ctx, tenant, name,
		`SET paused_at = NULL, pause_reason = NULL, resumed_at = $2, ramp_seconds = $3
		WHERE name = $1 AND paused_at IS NOT NULL`, s.core.Clock.Now(), ramp.Seconds())
}

func (s *Settings) setPause(
	ctx context.Context, tenant, name, set string, args ...any,
) (t catalog.StoredType, err error) {
	err = s.core.Change(ctx, tenant, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE `+postgres.Quote(schema.Of(tenant))+`.task_types `+set,
			append([]any{name}, args...)...); err != nil {
			return err
		}
		t, err = catalog.ReadTaskType(ctx, tx, tenant, name, "")
		return err
	})
	return t, postgres.Wrap(err, "setPause(%q, %q)", tenant, name)
}

// stopTries is how often stop tries to get its locks.
const stopTries = 20

// stopType keeps the token rows of a type in their tables until the transaction ends, and returns
// the type as it is then. Submits, leases and settlements of all types with the same tables wait.
// No roll of its sets opens meanwhile, since that would get tasks from other nodes.
func stopType(ctx context.Context, tx pgx.Tx, tenant, name string) (*catalog.Type, error) {
	if err := lockSets(ctx, tx, tenant, name); err != nil {
		return nil, err
	}
	at, err := catalog.ReadLocation(ctx, tx, tenant, name)
	if err != nil {
		return nil, err
	}
	t := &catalog.Type{Tenant: tenant, Location: at}
	t.Name = name
	return t, lockTables(ctx, tx, t)
}

// lockSets locks the rows of all sets that a type may have.
func lockSets(ctx context.Context, tx pgx.Tx, tenant, name string) error {
	_, err := tx.Exec(ctx, catalog.NewTables(tenant, catalog.SharedSet).SQL(0, `SELECT FROM {sets}
		WHERE name IN ('', $1) ORDER BY name FOR NO KEY UPDATE`), name)
	return err
}

// lockTables gets the locks of stopType. It doesn't wait in line for them, but tries again after a
// pause.
func lockTables(ctx context.Context, tx pgx.Tx, t *catalog.Type) error {
	all := t.TokenTables()
	for _, p := range t.Live() {
		all = append(all, t.SetAt(p).Tables.Task(p))
	}
	var err error
	for range stopTries {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, catalog.LockPatience); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `LOCK TABLE `+strings.Join(all, ", ")+
				` IN SHARE ROW EXCLUSIVE MODE`)
			return err
		})
		if !hot.IsHeld(err) {
			return err
		}
		sleep.For(ctx, 100*time.Millisecond)
	}
	return err
}

// liveStage returns a stage that has a live task, or "". It looks at some stages, or (nil) at
// all. Call stop before, as a task may be moving from one table to another.
func liveStage(
	ctx context.Context, tx pgx.Tx, t *catalog.Type, stages []string,
) (stage string, err error) {
	var selects []string
	for _, table := range t.TokenTables() {
		selects = append(selects, `(SELECT stage FROM `+table+
			` WHERE type = $1 AND ($2::text[] IS NULL OR stage = ANY ($2)) LIMIT 1)`)
	}
	err = tx.QueryRow(ctx, strings.Join(selects, " UNION ALL ")+" LIMIT 1", t.Number(), stages).
		Scan(&stage)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return stage, err
}

// ForgetTypes drops what this node keeps for task types of a tenant that are gone, so that
// short-lived types leave nothing behind. The catalog calls it after every change.
func ForgetTypes(s *Settings, tenant string) {
	gone := func(key catalog.TypeKey) bool {
		if key.Tenant != tenant {
			return false
		}
		_, err := s.core.Catalog.Type(key.Tenant, key.Type)
		return err != nil
	}
	s.core.Marks.Forget(gone)
	sets := s.core.Catalog.SetsOf(tenant)
	noSet := func(key catalog.TypeKey) bool { return key.Tenant == tenant && sets[key.Type] == nil }
	hot.Forget(s.hot, noSet)
}
