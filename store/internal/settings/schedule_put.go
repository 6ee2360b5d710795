package settings

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/timetable"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/schema"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// PutSchedule creates a schedule or makes a new version of it, and reports which; the same document
// again changes nothing. schedule must be valid, except for errors that only a timetable finds:
// these are CodeInvalid. If its times change, it ticks by the new ones from now on; ticks that were
// missed before stay missed.
func (s *schedules) PutSchedule(
	ctx context.Context, tenant string, schedule asyncflow.Schedule,
) (_ StoredSchedule, created bool, err error) {
	return s.putSchedule(ctx, tenant, schedule, false)
}

// CheckSchedule is a dry run of PutSchedule: it returns the same and changes nothing.
func (s *schedules) CheckSchedule(
	ctx context.Context, tenant string, schedule asyncflow.Schedule,
) (_ StoredSchedule, created bool, err error) {
	return s.putSchedule(ctx, tenant, schedule, true)
}

func (s *schedules) putSchedule(
	ctx context.Context, tenant string, schedule asyncflow.Schedule, dry bool,
) (stored StoredSchedule, created bool, err error) {
	now := s.core.Clock.Now()
	if err := timetable.Check(schedule, now); err != nil {
		return stored, false, err
	}
	err = s.checkNewUses(ctx, schedule.Uses(), func() ([]asyncflow.Capability, error) {
		old, err := s.Schedule(ctx, tenant, schedule.Name)
		return old.Uses(), err
	})
	if err != nil {
		return stored, false, err
	}
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		stored, created, err = s.writeCheckedSchedule(ctx, tx, tenant, schedule, now)
		if err == nil && dry {
			return postgres.ErrDry
		}
		audit.CallOf(ctx).NoteVersion(stored.Version, created)
		return err
	})
	// Another call has just created it: change that one.
	if postgres.State(err) == pgerrcode.UniqueViolation {
		return s.putSchedule(ctx, tenant, schedule, dry)
	}
	if errors.Is(err, postgres.ErrDry) {
		err = nil
	}
	return stored, created, postgres.Wrap(err, "PutSchedule(%q, %q)", tenant, schedule.Name)
}

// writeCheckedSchedule is writeSchedule within the tenant's quotas. It also reports whether the
// schedule is new.
func (s *schedules) writeCheckedSchedule(
	ctx context.Context, tx pgx.Tx, tenant string, schedule asyncflow.Schedule, now time.Time,
) (stored StoredSchedule, created bool, err error) {
	stored, g, err := writeSchedule(ctx, tx, tenant, schedule, now)
	created = g.one != ""
	if err != nil {
		return stored, created, err
	}
	return stored, created, s.checkConfig(ctx, tx, tenant, g)
}

// writeSchedule creates or changes a schedule and returns it. It locks the type's row first, as
// a deletion of the type does.
func writeSchedule(
	ctx context.Context, tx pgx.Tx, tenant string, schedule asyncflow.Schedule, now time.Time,
) (stored StoredSchedule, g growth, err error) {
	tag, err := tx.Exec(ctx,
		`SELECT FROM `+postgres.Quote(schema.Of(tenant))+`.task_types
			WHERE name = $1 FOR KEY SHARE`,
		schedule.Type)
	switch {
	case err != nil:
		return stored, g, err
	case tag.RowsAffected() == 0:
		return stored, g, config.UnknownType(schedule.Type)
	}
	if err := findAwaitedTypes(ctx, tx, tenant, schedule.DependsOn); err != nil {
		return stored, g, err
	}
	old, err := readSchedule(ctx, tx, tenant, schedule.Name, "FOR UPDATE")
	switch {
	case asyncflow.CodeOf(err) == asyncflow.CodeNotFound:
		g = growth{asyncflow.QuotaSchedules, docBytes(schedule) + len(schedule.Context)}
		if err := audit.CheckPrecondition(ctx, "", false); err != nil {
			return stored, g, err
		}
		err = createSchedule(ctx, tx, tenant, schedule, now)
	case err == nil:
		err = audit.CheckPrecondition(ctx, old.ETag(), sameSchedule(old.Schedule, schedule))
		if err != nil {
			return stored, g, err
		}
		g.bytes = docBytes(schedule) + len(schedule.Context) - docBytes(old.Schedule) -
			len(old.Context)
		err = updateSchedule(ctx, tx, tenant, old, schedule, now)
	}
	if err != nil {
		return stored, g, err
	}
	stored, err = readSchedule(ctx, tx, tenant, schedule.Name, "")
	return stored, g, err
}

// findAwaitedTypes refuses dependencies on tasks of types that don't exist: no task of the schedule
// could be submitted.
func findAwaitedTypes(
	ctx context.Context, tx pgx.Tx, tenant string, all []asyncflow.Dependency,
) error {
	if len(all) == 0 {
		return nil
	}
	names := records.Column(all,
		func(d *asyncflow.Dependency) string { return trees.TypeOfDependency(*d) })
	rows, _ := tx.Query(ctx, config.NewTables(tenant, config.SharedSet).SQL(0,
		`SELECT name FROM {types} WHERE name = ANY ($1)`), names)
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for i, name := range names {
		if !slices.Contains(known, name) {
			return asyncflow.BadDependency(i, "names the task type %s, which doesn't exist", name)
		}
	}
	return nil
}

// sameSchedule reports whether two versions of a schedule are the same document.
func sameSchedule(a, b asyncflow.Schedule) bool {
	docA, errA := json.Marshal(a)
	docB, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(docA) == string(docB) &&
		string(a.Context) == string(b.Context)
}

func createSchedule(
	ctx context.Context, tx pgx.Tx, tenant string, schedule asyncflow.Schedule, now time.Time,
) error {
	next, err := StoredSchedule{Schedule: schedule, CreatedAt: now}.after(now)
	if err != nil {
		return err
	}
	if next.IsZero() {
		return neverRuns(schedule, now)
	}
	spec, err := json.Marshal(schedule)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx,
		`INSERT INTO `+SchedulesOf(tenant)+`
		  (name, type, spec, context, version, next_at, created_at, updated_at)
		VALUES ($1, $2, $3::text::json, $4::text::json, 1, $5, $6, $6)`,
		schedule.Name, schedule.Type, string(spec), string(schedule.Context),
		postgres.OrNull(next), now)
	return err
}

// neverRuns is the error about a schedule without times to come.
func neverRuns(s asyncflow.Schedule, now time.Time) error {
	return asyncflow.InvalidField("ends_at",
		"is %s, and there is no tick from now (%s) until then: the schedule would never run",
		s.EndsAt.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

// updateSchedule makes a new version of a schedule, unless nothing changes. Its next tick stays,
// even if it is overdue, unless the times or the type change.
func updateSchedule(
	ctx context.Context, tx pgx.Tx, tenant string, old StoredSchedule, schedule asyncflow.Schedule,
	now time.Time,
) (err error) {
	next := old.NextAt
	last := &old.LastID.Number
	if old.LastID.Number == 0 || old.Type != schedule.Type {
		last = nil
	}
	if !schedule.SameTimes(old.Schedule) || old.Type != schedule.Type {
		if next, err = (StoredSchedule{Schedule: schedule, CreatedAt: old.CreatedAt,
			LastAt: old.LastAt}).after(now); err != nil {
			return err
		}
		// Another end is how a caller ends a schedule; other times are for running on.
		if next.IsZero() && schedule.EndsAt.Equal(old.EndsAt) {
			return neverRuns(schedule, now)
		}
	}
	spec, err := json.Marshal(schedule)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE `+SchedulesOf(tenant)+`
		SET type = $2, spec = $3::text::json, context = $4::text::json, version = version + 1,
		  next_at = $5, last_id = $6, updated_at = $7, last_error = '', failed_at = NULL
		WHERE name = $1 AND (spec::text <> $3::text OR context::text <> $4::text)`,
		schedule.Name, schedule.Type, string(spec), string(schedule.Context),
		postgres.OrNull(next), last,
		now)
	return postgres.Countable(err, "the versions of schedule "+schedule.Name)
}
