package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A roll that keeps too many tasks to be compacted is trimmed: passes go over its tasks by type and
// number, in small steps, and delete those that ended before their retention. What live tasks need
// stays, by the rules of a compaction. See ADR 46.

const (
	// trimWindow is how many tasks a step looks at; trimTasks, trimRows and trimBytes are the most
	// tasks that it deletes, with the rows of their journals and of their dependencies, and the
	// bytes of their contents. One task may be larger.
	trimWindow = 5000
	trimTasks  = 500
	trimRows   = 5000
	trimBytes  = 16 << 20
	// trimTurn is how long TrimRoll takes steps before the job goes on to other rolls.
	trimTurn = 2 * time.Second
)

// PlanTrim makes a cleared roll be trimmed if there are too many live tasks in it to be compacted,
// and reports whether there are. The first pass begins once tasks are old enough that ended before
// the roll was drained.
func (s *Upkeep) PlanTrim(
	ctx context.Context, set *config.TableSet, position int,
) (planned bool, err error) {
	db := s.core.DB(set.Tenant)
	live, err := set.LiveTasks(ctx, db, position, mostRemaining+1)
	if config.RolledOn(err) || err == nil && len(live.IDs) <= mostRemaining {
		return false, nil
	}
	if err != nil {
		return false, postgres.Wrap(err, "PlanTrim(%q, %q, %d)", set.Tenant, set.Name, position)
	}
	after := config.CompactAfter(s.core.Catalog.Retention(set, position))
	tag, err := db.Exec(ctx, set.Tables.SQL(0, planTrimSQL), set.Name, position, after)
	planned = err == nil && tag.RowsAffected() > 0
	return planned, postgres.Wrap(err, "PlanTrim(%q, %q, %d)", set.Tenant, set.Name, position)
}

// planTrimSQL adds an interval to a time in a query in FROM: Citus refuses that in SET.
const planTrimSQL = `
UPDATE {rolls} r SET trim_at = d.at
FROM (SELECT drained_at + $3::interval AS at FROM {rolls}
  WHERE table_set = $1 AND position = $2 LIMIT 1) d
WHERE r.table_set = $1 AND r.position = $2 AND r.ready_dropped AND r.trim_at IS NULL`

// TrimRoll takes some of the steps that are due of the trimming of a roll: it deletes tasks that
// had ended by a time. It reports whether it took any. Each step is a transaction that holds the
// row of the roll, so that no task of it is redriven meanwhile. A step that waits for a lock for
// too long did nothing, and is due again.
func (s *Upkeep) TrimRoll(
	ctx context.Context, set *config.TableSet, position int, since time.Time,
) (done bool, err error) {
	ctx = postgres.Patient(ctx)
	end := s.core.Clock.Now().Add(trimTurn)
	for more := true; more && err == nil && s.core.Clock.Now().Before(end); {
		var took bool
		took, more, err = s.trimStep(ctx, set, position, since)
		done = done || took && err == nil
	}
	if config.RolledOn(err) || asyncflow.CodeOf(err) == asyncflow.CodeNotFound { // it was dropped
		return done, nil
	}
	_, err = config.UnlessBusy(done, err, "TrimRoll(%q, %q, %d)", set.Tenant, set.Name, position)
	return done, err
}

// trim is a step of the trimming of a roll.
type trim struct {
	ctx      context.Context
	s        *Upkeep
	tx       pgx.Tx
	set      *config.TableSet
	position int
	since    time.Time // tasks go that had ended by then
	at       config.Trim
}

// trimStep takes a step, if one is due. more reports whether another one of this pass is.
func (s *Upkeep) trimStep(
	ctx context.Context, set *config.TableSet, position int, since time.Time,
) (took, more bool, err error) {
	x := &trim{ctx: ctx, s: s, set: set, position: position, since: since}
	err = pgx.BeginFunc(ctx, s.core.DB(set.Tenant), func(tx pgx.Tx) (err error) {
		x.tx = tx
		took, more, err = x.take()
		return err
	})
	return took && err == nil, more && err == nil, err
}

func (x *trim) take() (took, more bool, err error) {
	b := &pgx.Batch{}
	postgres.QueueSettings(b, postgres.SearchSettings)
	if err := x.tx.SendBatch(x.ctx, b).Close(); err != nil {
		return false, false, err
	}
	if x.at, err = x.set.ReadTrim(x.ctx, x.tx, x.position); err != nil {
		return false, false, err
	}
	now := x.s.core.Clock.Now()
	if x.at.At.IsZero() || x.at.At.After(now) {
		return false, false, nil
	}
	w, err := x.visit()
	if err != nil {
		return false, false, err
	}
	free, err := x.lock()
	if err != nil || !free {
		return false, false, err
	}
	trimmed, err := x.deleteEnded(&w)
	if err != nil {
		return false, false, err
	}
	next := config.Trim{At: x.at.At, Type: w.last.number, ID: w.last.id}
	if w.ends {
		again := config.TrimAgain(x.s.core.Catalog.Retention(x.set, x.position))
		next = config.Trim{At: now.Add(again)}
	}
	return true, !w.ends, x.set.SaveTrim(x.ctx, x.tx, x.position, next, trimmed)
}

// lock locks the row of the roll. It reports whether tasks may be deleted: another node hasn't
// taken the step meanwhile, and the roll is neither being dropped nor tidied up.
func (x *trim) lock() (free bool, err error) {
	if err := lockSoon(x.ctx, x.tx, x.set, x.position); err != nil {
		return false, err
	}
	at, err := x.set.ReadTrim(x.ctx, x.tx, x.position)
	if err != nil || at.Type != x.at.Type || at.ID != x.at.ID || !at.At.Equal(x.at.At) {
		return false, err
	}
	left, err := x.set.Remaining(x.ctx, x.tx, x.position)
	return !left.Untidy() && !left.Dropping(), err
}
