package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// PutTaskType creates a task type, with tables if it needs new ones, or makes a new version of it.
// The same document again changes nothing. Without a mapping, it refuses to remove a stage that has
// live tasks: CodeConflict.
func (s *types) PutTaskType(
	ctx context.Context, tenant string, t asyncflow.TaskType,
) (_ config.StoredType, created bool, err error) {
	return s.putTaskType(ctx, tenant, t, false)
}

// CheckTaskType is a dry run of PutTaskType: it returns the same and changes nothing.
func (s *types) CheckTaskType(
	ctx context.Context, tenant string, t asyncflow.TaskType,
) (_ config.StoredType, created bool, err error) {
	return s.putTaskType(ctx, tenant, t, true)
}

func (s *types) putTaskType(
	ctx context.Context, tenant string, t asyncflow.TaskType, dry bool,
) (stored config.StoredType, created bool, err error) {
	if err := s.checkKnown(ctx, tenant, t); err != nil {
		return stored, false, err
	}
	err = untilNoDeadlock(ctx, func() error {
		return audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
			stored, created, err = s.writeCheckedType(ctx, tx, tenant, t)
			if err == nil && dry {
				return postgres.ErrDry
			}
			audit.CallOf(ctx).NoteVersion(stored.Version, created)
			return err
		})
	})
	// Another call has just created it: change that one.
	if postgres.State(err) == pgerrcode.DuplicateTable ||
		postgres.State(err) == pgerrcode.UniqueViolation {
		return s.putTaskType(ctx, tenant, t, dry)
	}
	if errors.Is(err, postgres.ErrDry) {
		err = nil
	}
	return stored, created, postgres.Wrap(err, "PutTaskType(%q, %q)", tenant, t.Name)
}

// checkKnown refuses a type that begins to use what a running node doesn't know.
func (s *types) checkKnown(ctx context.Context, tenant string, t asyncflow.TaskType) error {
	return s.checkNewUses(ctx, t.Uses(), func() ([]asyncflow.Capability, error) {
		old, err := s.core.Catalog.Type(tenant, t.Name)
		if err != nil {
			return nil, err
		}
		return old.Uses(), nil
	})
}

// checkNewUses refuses what a running node doesn't know, unless it was used before. before is
// called only if anything is used; its error says that there is nothing yet.
func (s *base) checkNewUses(
	ctx context.Context, needed []asyncflow.Capability,
	before func() ([]asyncflow.Capability, error),
) error {
	if len(needed) == 0 {
		return nil
	}
	if used, err := before(); err == nil {
		needed = slices.DeleteFunc(needed, func(c asyncflow.Capability) bool {
			return slices.Contains(used, c)
		})
	}
	return s.core.CheckKnown(ctx, needed)
}

// writeCheckedType is writeTaskType within the tenant's quotas. It also reports whether the type
// is new.
func (s *types) writeCheckedType(
	ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType,
) (stored config.StoredType, created bool, err error) {
	stored, g, err := writeTaskType(ctx, tx, tenant, t, s.core.Clock.Now())
	created = g.one != ""
	if err != nil {
		return stored, created, err
	}
	return stored, created, s.checkConfig(ctx, tx, tenant, g)
}

// writeTaskType creates or changes a task type and returns it.
func writeTaskType(
	ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType, now time.Time,
) (stored config.StoredType, g growth, err error) {
	spec, err := json.Marshal(t)
	if err != nil {
		return stored, g, err
	}
	g.bytes = docBytes(t, t.StageMapping)
	old, err := lockType(ctx, tx, tenant, t)
	switch {
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound && asyncflow.IsTarget(t.Name) &&
		t.Notifies == "":
		return stored, g, asyncflow.InvalidField("name",
			"begins with %s, as only targets of on_final do: they are made by an on_final",
			asyncflow.TargetPrefix)
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		g.one = asyncflow.QuotaTaskTypes
		if err := audit.CheckPrecondition(ctx, "", false); err != nil {
			return stored, g, err
		}
		err = createTaskType(ctx, tx, tenant, t, spec, now)
	case err == nil:
		t = t.After(old.TaskType)
		if spec, err = json.Marshal(t); err != nil {
			return stored, g, err
		}
		if err = audit.CheckPrecondition(ctx, old.ETag(), sameSpec(old.TaskType, t)); err != nil {
			return stored, g, err
		}
		g.bytes = docBytes(t, t.StageMapping) - docBytes(old.TaskType, old.StageMapping)
		err = changeTaskType(ctx, tx, tenant, old.TaskType, t, spec, now)
	}
	if err != nil {
		return stored, g, err
	}
	if err = writeSearchFrom(ctx, tx, tenant, t, old.Searchable, g.one != ""); err != nil {
		return stored, g, err
	}
	stored, err = config.ReadTaskType(ctx, tx, tenant, t.Name, "")
	return stored, g, err
}

// lockType locks the row of a type and reads it. If it is to have searchable fields, no next roll
// opens until the transaction ends. Then it doesn't wait for long: a transaction that submits by
// SQL may lock the type's row, and the rolls of all types would wait, too.
func lockType(
	ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType,
) (old config.StoredType, err error) {
	const lock = "FOR NO KEY UPDATE"
	if len(t.Searchable) == 0 {
		return config.ReadTaskType(ctx, tx, tenant, t.Name, lock)
	}
	if err := lockSets(ctx, tx, tenant, t.Name); err != nil { // first, as moves of the type do
		return old, err
	}
	if _, err := tx.Exec(ctx, config.LockPatience); err != nil {
		return old, err
	}
	old, err = config.ReadTaskType(ctx, tx, tenant, t.Name, lock)
	if err != nil && asyncflow.CodeOf(err) != asyncflow.CodeNotFound {
		return old, unlessTypeLocked(err, t.Name)
	}
	_, late := tx.Exec(ctx, `SET LOCAL lock_timeout TO DEFAULT`)
	return old, postgres.FirstError(late, err)
}

// unlessTypeLocked explains that the row of a type is locked for longer than a change waits.
func unlessTypeLocked(err error, name string) error {
	if postgres.State(err) != pgerrcode.LockNotAvailable {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: time.Second, Err: err,
		Message: "a transaction that submitted tasks of " + name + " by SQL, or another change, " +
			"keeps the type as it is: try again when that has ended"}
}

// changeTaskType writes the new settings of a type, if they differ and tasks and listeners allow
// them.
func changeTaskType(
	ctx context.Context, tx pgx.Tx, tenant string, old, t asyncflow.TaskType, spec []byte,
	now time.Time,
) error {
	if err := t.Validate(); err != nil { // by now it may have too many mappings
		return err
	}
	if err := checkRemovedStages(ctx, tx, tenant, old, t); err != nil {
		return err
	}
	if err := checkListeners(ctx, tx, tenant, t); err != nil {
		return err
	}
	if sameSpec(old, t) {
		return nil
	}
	if t.ChangesWaits(old) {
		if err := trees.LookAtSignalWaits(ctx, tx, tenant, t.Name, now); err != nil {
			return err
		}
	}
	return updateTaskType(ctx, tx, tenant, t, spec, now)
}

func updateTaskType(
	ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType, spec []byte, now time.Time,
) error {
	mapping, err := json.Marshal(t.StageMapping) // with sorted keys
	if err != nil {
		return err
	}
	if err := keepVersion(ctx, tx, tenant, t.Name); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE `+postgres.Quote(schema.Of(tenant))+`.task_types
		SET spec = $2::text::json, stage_mapping = $3::text::json, version = version + 1,
		  updated_at = $4
		  WHERE name = $1`,
		t.Name, string(spec), string(mapping), now)
	return postgres.Countable(err, "the versions of task type "+t.Name)
}

// sameSpec reports whether two versions of a type are the same document.
func sameSpec(a, b asyncflow.TaskType) bool {
	docA, errA := json.Marshal(a)
	docB, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(docA) == string(docB) &&
		maps.Equal(a.StageMapping, b.StageMapping)
}

func createTaskType(
	ctx context.Context, tx pgx.Tx, tenant string, t asyncflow.TaskType, spec []byte, now time.Time,
) error {
	set, from, err := chooseSet(ctx, tx, tenant, t, now)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		WITH t AS (
		  INSERT INTO {types} (name, version, spec, table_set, from_pos, created_at, updated_at)
		  VALUES ($1, 1, $2, $3, $4, $5, $5) RETURNING number)
		INSERT INTO {locks} (name, number) SELECT $6, number FROM t`), t.Name, string(spec), set,
		from, now, catalog.LeaseLock)
	return postgres.Countable(err, "task types")
}

// checkRemovedStages refuses to remove a stage without a mapping if it has live tasks, or if
// workers of live tasks in another stage may send them there.
func checkRemovedStages(
	ctx context.Context, tx pgx.Tx, tenant string, old, t asyncflow.TaskType,
) error {
	removed := t.UnmappedStages(old)
	if len(removed) == 0 {
		return nil
	}
	removed = append(removed, t.Senders(old, removed)...)
	location, err := config.ReadLocation(ctx, tx, tenant, t.Name)
	if err != nil {
		return err
	}
	// Without a lock first: most types that are refused are refused here, and nobody waits.
	stage, err := liveStage(ctx, tx, &config.Type{Location: location}, removed)
	if err != nil {
		return err
	}
	if stage != "" {
		return refuseRemoval(t, stage)
	}
	stopped, err := stopType(ctx, tx, tenant, t.Name)
	if err != nil {
		return err
	}
	stage, err = liveStage(ctx, tx, stopped, removed)
	if err != nil || stage == "" {
		return err
	}
	return refuseRemoval(t, stage)
}

// refuseRemoval returns the error for live tasks in a stage that is removed, or in one from which
// they may go to a removed one.
func refuseRemoval(t asyncflow.TaskType, stage string) error {
	if t.StageIndex(stage) >= 0 {
		return &asyncflow.Error{Code: asyncflow.CodeConflict,
			Message: fmt.Sprintf("live tasks stand in stage %q, from which next leads to a stage "+
				"that would be removed; stage_mapping can say where they go on", stage),
			Fields: []asyncflow.FieldError{{Field: "stages",
				Message: fmt.Sprintf("lacks a stage to which tasks in %q may go", stage)}}}
	}
	return &asyncflow.Error{Code: asyncflow.CodeConflict,
		Message: fmt.Sprintf("stage %q can't be removed: live tasks stand in it; "+
			"stage_mapping can say where they go on", stage),
		Fields: []asyncflow.FieldError{{Field: "stages",
			Message: fmt.Sprintf("lacks %q, in which live tasks stand", stage)}}}
}
