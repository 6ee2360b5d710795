package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/timetable"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// StoredSchedule is a schedule with its state and its times.
type StoredSchedule struct {
	asyncflow.Schedule
	PausedAt  time.Time        // zero: it is not paused
	NextAt    time.Time        // the first tick that wasn't processed; zero: there is none
	LastAt    time.Time        // the last tick that had a task; zero: none had
	LastID    asyncflow.TaskID // that task; zero: unknown, or of another type than now
	Skipped   int64            // ticks without a task, as the previous task was not final
	SkippedAt time.Time        // the last skipped tick
	LastError string           // why the task of the due tick couldn't be submitted; "": it could
	FailedAt  time.Time        // when that was first so
	CreatedAt time.Time
	UpdatedAt time.Time
}

// NextRuns returns the next n ticks after a time; none while the schedule is paused.
func (s StoredSchedule) NextRuns(now time.Time, n int) ([]time.Time, error) {
	if !s.PausedAt.IsZero() {
		return nil, nil
	}
	t, err := timetable.New(s.Schedule, s.CreatedAt)
	if err != nil {
		return nil, err
	}
	return t.Upcoming(now, n), nil
}

// SchedulesOf returns the table of a tenant's schedules.
func SchedulesOf(tenant string) string { return postgres.Quote(schema.Of(tenant)) + ".schedules" }

// ScheduleColumns are the columns of a schedule.
const ScheduleColumns = `s.name, s.version, s.spec, s.context, s.paused_at, s.next_at, s.last_at,
  coalesce(s.last_id, 0), s.skipped, s.skipped_at, s.last_error, s.failed_at,
  s.created_at, s.updated_at`

// SchedulePage returns up to limit schedules of a tenant after a name, by name, without their
// contexts. It reports whether there are more.
func (s *schedules) SchedulePage(
	ctx context.Context, tenant, after string, limit int,
) (page []StoredSchedule, more bool, err error) {
	rows, _ := s.core.DB(tenant).Query(ctx,
		`SELECT `+ScheduleColumns+` FROM (
		  SELECT name, version, spec, NULL::json AS context, paused_at, next_at, last_at, last_id,
		    skipped, skipped_at, last_error, failed_at, created_at, updated_at
		  FROM `+SchedulesOf(tenant)+`) s
		WHERE name > $1 ORDER BY name LIMIT $2`, after, limit+1)
	page, more, err = postgres.CollectPage(rows, limit, postgres.PageBytes, ScanSchedule,
		func(s StoredSchedule) int { return docBytes(s.Schedule) })
	return page, more, postgres.Wrap(err, "SchedulePage(%q)", tenant)
}

// Schedule returns one schedule; CodeNotFound when there is none.
func (s *schedules) Schedule(ctx context.Context, tenant, name string) (StoredSchedule, error) {
	return readSchedule(ctx, s.core.DB(tenant), tenant, name, "")
}

// DeleteSchedule deletes a schedule. None of its tasks is submitted after that; present tasks
// stay.
func (s *schedules) DeleteSchedule(ctx context.Context, tenant, name string) error {
	err := audit.Do(ctx, s.core, tenant, func(tx pgx.Tx) error {
		stored, err := readSchedule(ctx, tx, tenant, name, "FOR UPDATE")
		if err != nil {
			return err
		}
		if err := audit.CheckPrecondition(ctx, stored.ETag(), false); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `DELETE FROM `+SchedulesOf(tenant)+` WHERE name = $1`, name)
		return err
	})
	return postgres.Wrap(err, "DeleteSchedule(%q, %q)", tenant, name)
}

// PauseSchedule pauses a schedule and returns it: its ticks pass without tasks. No task of a
// tick is submitted after that. A schedule that is already paused keeps its time.
func (s *schedules) PauseSchedule(
	ctx context.Context, tenant, name string,
) (stored StoredSchedule, err error) {
	err = audit.Do(ctx, s.core, tenant, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx,
			`UPDATE `+SchedulesOf(tenant)+` SET paused_at = $2 WHERE name = $1
				AND paused_at IS NULL`, name,
			s.core.Clock.Now()); err != nil {
			return err
		}
		stored, err = readSchedule(ctx, tx, tenant, name, "")
		return err
	})
	return stored, postgres.Wrap(err, "PauseSchedule(%q, %q)", tenant, name)
}

// ResumeSchedule resumes a paused schedule with its next tick, and returns it. The ticks of the
// pause stay without tasks, whatever its catch-up policy. It doesn't change a schedule that is
// not paused.
func (s *schedules) ResumeSchedule(
	ctx context.Context, tenant, name string,
) (stored StoredSchedule, err error) {
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		if stored, err = readSchedule(ctx, tx, tenant, name, "FOR UPDATE"); err != nil ||
			stored.PausedAt.IsZero() {
			return err
		}
		if stored.NextAt, err = stored.after(s.core.Clock.Now()); err != nil {
			return err
		}
		stored.PausedAt = time.Time{}
		_, err := tx.Exec(ctx,
			`UPDATE `+SchedulesOf(tenant)+` SET paused_at = NULL, next_at = $2 WHERE name = $1`,
			name,
			postgres.OrNull(stored.NextAt))
		return err
	})
	return stored, postgres.Wrap(err, "ResumeSchedule(%q, %q)", tenant, name)
}

// after returns the first tick after a time, and after the last one that had a task.
func (s StoredSchedule) after(now time.Time) (time.Time, error) {
	t, err := timetable.New(s.Schedule, s.CreatedAt)
	if err != nil {
		return time.Time{}, err
	}
	if now.Before(s.LastAt) {
		now = s.LastAt
	}
	return t.Next(now), nil
}

func unknownSchedule(name string) error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "there is no schedule %s", name)
}

func readSchedule(
	ctx context.Context, q postgres.Querier, tenant, name, lock string,
) (StoredSchedule, error) {
	rows, _ := q.Query(ctx,
		`SELECT `+ScheduleColumns+` FROM `+SchedulesOf(tenant)+` s WHERE s.name = $1 `+lock, name)
	stored, err := pgx.CollectExactlyOneRow(rows, ScanSchedule)
	if errors.Is(err, pgx.ErrNoRows) {
		err = unknownSchedule(name)
	}
	return stored, postgres.Wrap(err, "readSchedule(%q, %q)", tenant, name)
}

// ScanSchedule reads a row of ScheduleColumns.
func ScanSchedule(row pgx.CollectableRow) (s StoredSchedule, err error) {
	var name string
	var version int
	var spec, context []byte
	var paused, next, last, skipped, failed *time.Time
	if err := row.Scan(&name, &version, &spec, &context, &paused, &next, &last, &s.LastID.Number,
		&s.Skipped, &skipped, &s.LastError, &failed, &s.CreatedAt, &s.UpdatedAt); err != nil {
		return s, err
	}
	if err := json.Unmarshal(spec, &s.Schedule); err != nil {
		return s, fmt.Errorf("schedule %s: %w", name, err)
	}
	s.Name = name
	s.Version = version
	s.Context = context
	s.PausedAt = postgres.OrZero(paused)
	s.NextAt = postgres.OrZero(next)
	s.LastAt = postgres.OrZero(last)
	s.SkippedAt = postgres.OrZero(skipped)
	s.FailedAt = postgres.OrZero(failed)
	if s.LastID.Number != 0 {
		s.LastID.Type = s.Type
	}
	return s, nil
}

// maxFailingSchedules bounds the schedules that FailingSchedules returns: each is an alert of its
// own.
const maxFailingSchedules = 100

// FailingSchedules returns a tenant's schedules that aren't paused and have a due task that can't
// be submitted, with the time since when: at most 100, the first to fail.
func (s *schedules) FailingSchedules(
	ctx context.Context, tenant string,
) (map[string]time.Time, error) {
	rows, _ := s.core.DB(tenant).Query(ctx, `SELECT name, failed_at FROM `+SchedulesOf(tenant)+`
		WHERE last_error <> '' AND failed_at IS NOT NULL AND paused_at IS NULL
		ORDER BY failed_at LIMIT $1`, maxFailingSchedules)
	all := map[string]time.Time{}
	var name string
	var since time.Time
	_, err := pgx.ForEachRow(rows, []any{&name, &since}, func() error {
		all[name] = since
		return nil
	})
	return all, postgres.Wrap(err, "FailingSchedules(%q)", tenant)
}

// ETag changes with each version of the schedule. A pause doesn't change it, nor does a run.
func (s StoredSchedule) ETag() string {
	return config.ETagOf(s.Name, s.Version, s.CreatedAt.UnixMicro())
}
