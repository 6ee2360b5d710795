package tasks

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// The contents of the tasks of a type with a ContextRetention are erased that long after the end of
// each task. Tasks end in another order than that of their numbers, and there is no index on the
// end. So cursors go over the numbers of each roll, once, that long after the tasks were submitted:
// whatever ended at once is due then. Each other task that a cursor passes gets a row in
// content_waits: one that is live can't be due earlier than that long after the visit, and so it is
// visited again only then. See ADR 49.

const (
	// agedLock is the lock of a step, and the name of the job.
	agedLock = "erase"
	// agedWindow is how many tasks a step looks at; agedTasks, agedRows and agedBytes are
	// the most tasks that it erases, with the rows of their journals and the bytes of their
	// contents. One task may be larger.
	agedWindow = 500
	agedTasks  = stepTasks
	agedRows   = 5000
	agedBytes  = 16 << 20
	// mostHold is the longest time for which a cursor waits for a task that is final.
	mostHold = 10 * time.Minute
	// mostAgain is after how long a task with contents that are needed is visited again at the
	// latest.
	mostAgain = time.Hour
)

// AgedStep is what a step of the job erase did.
type AgedStep struct {
	Done int  // how many tasks it erased
	More bool // another step may be due
	// Next is when the next step is due if none is now; zero: none will be.
	Next time.Time
	// Roll is the position of the roll in which the step worked; 0: it found nothing to do.
	Roll int
	// Held reports whether the step waited for a lock in the roll for too long. It did nothing.
	Held bool
	// Locked reports whether the step had the locks in the roll that an erasure needs.
	Locked bool
}

// AgingTypes returns the names of a tenant's types with contents that are erased after a time.
func (s *Tasks) AgingTypes(tenant string) (names []string) {
	for name, t := range s.core.Catalog.TypesOf(tenant) {
		if !t.ContextRetention.IsZero() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// BeginAging makes the cursors of a tenant's types in rolls without them. It returns the names of
// the types for which a step is due, and when the next one is due of any other; zero: none is.
// CodeConflict while a node runs that doesn't know erased tasks.
func (s *Tasks) BeginAging(
	ctx context.Context, tenant string,
) (due []string, next time.Time, err error) {
	types := map[int32]*config.Type{}
	for _, t := range s.core.Catalog.TypesOf(tenant) {
		if !t.ContextRetention.IsZero() {
			types[t.Number()] = t
		}
	}
	if len(types) == 0 {
		return nil, next, nil
	}
	if err := s.core.CheckKnown(ctx, erasureNeeds); err != nil {
		return nil, next, postgres.Wrap(err, "BeginAging(%q)", tenant)
	}
	now := s.core.Clock.Now()
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		firsts, err := beginCursors(ctx, tx, tenant, types, now)
		for number, since := range firsts {
			at := since.Add(types[number].ContextRetention.Std())
			switch {
			case !at.After(now):
				due = append(due, types[number].Name)
			case next.IsZero() || at.Before(next):
				next = at
			}
		}
		return err
	})
	slices.Sort(due)
	return due, next, postgres.Wrap(err, "BeginAging(%q)", tenant)
}

// beginCursors makes the cursors that are missing. It returns since when the contents are kept that
// are due next, by the number of the type.
func beginCursors(
	ctx context.Context, tx pgx.Tx, tenant string, types map[int32]*config.Type, now time.Time,
) (map[int32]time.Time, error) {
	names := config.NewTables(tenant, config.SharedSet)
	all := slices.Collect(maps.Keys(types))
	var numbers []int32
	var starts []int64
	var sinces []time.Time
	for number, t := range types {
		for _, position := range t.Rolls() {
			first := config.FirstOfRoll(position)
			numbers = append(numbers, number, number)
			starts = append(starts, first, first+asyncflow.FirstBySQL)
			since := now.Add(-t.ContextRetention.Std()) // it is due at once
			sinces = append(sinces, since, since)
		}
	}
	_, err := tx.Exec(ctx, names.SQL(0, `
		INSERT INTO {content_cursors} (type, upto, passed, since)
		SELECT u.type, u.first + $4, u.first - 1, u.since
		FROM unnest($1::int[], $2::bigint[], $3::timestamptz[]) AS u (type, first, since)
		WHERE NOT EXISTS (SELECT FROM {content_cursors} c
		    WHERE c.type = u.type AND c.upto = u.first + $4)
		  AND EXISTS (SELECT FROM {types} t WHERE t.number = u.type)
		ON CONFLICT DO NOTHING`), numbers, starts, sinces, asyncflow.FirstBySQL-1)
	if err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, names.SQL(0, `
		SELECT u.type, min(f.since) FROM unnest($1::int[]) AS u (type), LATERAL (
		  SELECT since FROM {content_cursors} WHERE type = u.type AND since < 'infinity'
		  UNION ALL
		  (SELECT since FROM {content_waits} WHERE type = u.type ORDER BY since LIMIT 1)) f
		GROUP BY u.type`), all)
	firsts := map[int32]time.Time{}
	var number int32
	var since time.Time
	_, err = pgx.ForEachRow(rows, []any{&number, &since}, func() error {
		firsts[number] = since
		return nil
	})
	return firsts, err
}

// aging is a step of the job erase.
type aging struct {
	ctx  context.Context
	s    *Tasks
	tx   pgx.Tx
	t    *config.Type
	keep time.Duration // after the end
	now  time.Time     // by the database's clock
	step AgedStep
	// without are the positions of rolls that the step leaves alone; position is that of the roll
	// at which it works.
	without  []int
	position int

	erased []int64
}

// EraseAged takes a step for a type: it erases the contents of some tasks that ended long
// enough ago. A step is one transaction, which one node at a time takes for a tenant. A step that
// waits for a lock for too long did nothing, and is due again. The step leaves the rolls without
// alone: a transaction may hold them for long, and other rolls don't wait for it.
func (s *Tasks) EraseAged(
	ctx context.Context, tenant, name string, without []int,
) (AgedStep, error) {
	t, err := s.core.Catalog.Fresh(ctx, tenant, name)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound { // it was deleted
		return AgedStep{}, nil
	}
	if err != nil {
		return AgedStep{}, err
	}
	x := &aging{step: AgedStep{Next: s.core.Clock.Now()},
		without: append([]int{}, without...)} // never NULL
	ctx = postgres.Patient(ctx)
	err = s.core.Exclusively(ctx, tenant, agedLock, func(tx pgx.Tx, now time.Time) error {
		x.ctx = ctx
		x.s = s
		x.tx = tx
		x.t = t
		x.now = now
		return x.take()
	})
	locked := postgres.State(err) == pgerrcode.LockNotAvailable
	if errors.Is(err, config.ErrElsewhere) || config.RolledOn(err) || locked {
		held := locked && x.position != 0
		return AgedStep{Next: s.core.Clock.Now(), Roll: x.position, Held: held}, nil
	}
	if err != nil {
		return AgedStep{}, postgres.Wrap(err, "EraseAged(%q, %q)", tenant, name)
	}
	for _, id := range x.erased {
		s.core.Watchers.Tell(t.Key(), id)
	}
	x.step.Roll = x.position
	return x.step, nil
}

// take takes the step that is due for longest, if any is.
func (x *aging) take() error {
	if _, err := x.tx.Exec(x.ctx, erasurePatience); err != nil {
		return err
	}
	// Its retention stays as it is: after the answer to a change nothing is erased by the old one.
	kind, err := config.ReadTaskType(x.ctx, x.tx, x.t.Tenant, x.t.Name, "FOR SHARE SKIP LOCKED")
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound { // it is being changed, or was deleted
		return postgres.ErrIdle
	}
	if err != nil {
		return err
	}
	if x.keep = kind.ContextRetention.Std(); x.keep == 0 {
		x.step = AgedStep{}
		return postgres.ErrIdle
	}
	b := &pgx.Batch{}
	postgres.QueueSettings(b, postgres.SearchSettings)
	if err := x.tx.SendBatch(x.ctx, b).Close(); err != nil {
		return err
	}
	if x.t, err = config.RollsNow(x.ctx, x.tx, x.t); err != nil {
		return err
	}
	c, since, err := x.first()
	if err != nil {
		return err
	}
	x.step = AgedStep{}
	if since == nil {
		return postgres.ErrIdle
	}
	if x.due(*since).After(x.now) {
		x.step.Next = x.due(*since)
		return postgres.ErrIdle
	}
	x.step.More = true
	if c.upto == 0 {
		return x.visitWaits(int(c.passed))
	}
	x.position = c.position()
	return x.advance(c)
}

// due returns when contents are to be erased that are kept since a time.
func (x *aging) due(since time.Time) time.Time { return since.Add(x.keep) }

// FirstAgedSQL reads the cursor that is due first, or the roll of the first task in content_waits.
// Tasks of rolls that are left alone may be due for long, and many: it goes from roll to roll. The
// ORDER BY leaves the planner one index for the first task of a roll.
const FirstAgedSQL = `
WITH RECURSIVE rolls AS (
  (SELECT id >> 40 AS roll FROM {content_waits} WHERE type = $1 ORDER BY id LIMIT 1)
  UNION ALL
  SELECT n.roll FROM rolls r, LATERAL (
    SELECT id >> 40 AS roll FROM {content_waits}
    WHERE type = $1 AND id >= (r.roll + 1) << 40 ORDER BY id LIMIT 1) n)
SELECT upto, passed, closing, since FROM (
  SELECT upto, passed, closing, since FROM {content_cursors}
  WHERE type = $1 AND since < 'infinity' AND upto >> 40 <> ALL ($2)
  UNION ALL
  SELECT 0, r.roll, false, w.since FROM rolls r, LATERAL (
    SELECT since FROM {content_waits} WHERE type = $1 AND id >> 40 BETWEEN r.roll AND r.roll
    ORDER BY id >> 40, since LIMIT 1) w
  WHERE r.roll <> ALL ($2)) c
ORDER BY since, upto LIMIT 1`

// first returns the cursor that is due first; one with upto 0 stands for the tasks in
// content_waits of the roll passed. since is nil if there is none.
func (x *aging) first() (c contentCursor, since *time.Time, err error) {
	rows, _ := x.tx.Query(x.ctx, x.t.SQL(0, FirstAgedSQL), x.t.Number(), x.without)
	_, err = pgx.ForEachRow(rows, []any{&c.upto, &c.passed, &c.closing, &since},
		func() error { return nil })
	return c, since, err
}
