package trees

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Expired is the result of Expire.
type Expired struct {
	Settled []asyncflow.Settlement // of tasks that it has ended
	Changed int                    // how many lifetimes it has ended or moved on
}

// Announce announces what was expired after its transaction.
func (e Expired) Announce(ctx context.Context, s *hot.Path, t *config.Type) {
	if len(e.Settled) > 0 {
		hot.AnnounceTakenEnds(ctx, s, t, e.Settled, &records.Tokens{})
	}
}

// Expire looks at tasks that seem to be at the end of their lifetime. It ends the live ones, and
// moves the lifetimes of other ones on: they have begun in time, or have ended, or their type says
// something else by now. It locks fan-outs first, then token rows, then lifetimes, as others do.
// Where there may be many tasks, its transaction is pinned.
func Expire(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, now time.Time,
) (Expired, error) {
	x := &expiry{ctx: ctx, tx: tx, t: t, now: now}
	if err := LockFanOuts(ctx, tx, t, slices.Sorted(slices.Values(ids))); err != nil {
		return Expired{}, err
	}
	rolls := config.ByPosition(ids)
	for _, position := range slices.Sorted(maps.Keys(rolls)) {
		if !t.Has(position) { // its tables were dropped
			x.forget(rolls[position])
			continue
		}
		if err := x.roll(rolls[position]); err != nil {
			return Expired{}, err
		}
	}
	moved, err := records.MoveLifetimes(ctx, tx, t, x.moves)
	return Expired{x.settled, len(x.settled) + moved}, err
}

// ExpireSoon is Expire in a transaction of its own. What it can't do, the job expire does.
func ExpireSoon(ctx context.Context, s *Trees, t *config.Type, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	var expired Expired
	err := s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		return s.inFollow(ctx, t.Tenant, func(tx pgx.Tx) (err error) {
			expired, err = Expire(ctx, tx, t, ids, s.core.Clock.Now())
			return err
		})
	})
	if err != nil {
		return postgres.Wrap(err, "ExpireSoon(%q, %q)", t.Tenant, t.Name)
	}
	expired.Announce(ctx, s.hot, t)
	if len(expired.Settled) > 0 {
		s.core.TellFollowUp(t.Tenant)
	}
	return nil
}

// expiry is one transaction of Expire.
type expiry struct {
	ctx     context.Context
	tx      pgx.Tx
	t       *config.Type
	now     time.Time
	settled []asyncflow.Settlement
	moves   []records.LifetimeMove // of tasks that go on, or had ended before
}

// forget drops the rows of tasks that don't exist any more.
func (x *expiry) forget(ids []int64) {
	for _, id := range ids {
		x.moves = append(x.moves, records.LifetimeMove{ID: id})
	}
}

// roll looks at due tasks of one roll. What changes a task's lifetime or begins it needs its token
// row, so nothing does once that is locked. A task with a token row that just moves to another
// table, or that somebody else has locked, is left to the next step.
func (x *expiry) roll(ids []int64) error {
	tokens, err := x.lockTokens(ids)
	if err != nil {
		return err
	}
	found, err := x.read(ids, tokens)
	if err != nil {
		return err
	}
	known := make(map[int64]bool, len(found))
	why := map[int64]asyncflow.Expiry{} // of tasks that end
	for _, d := range found {
		known[d.id] = true
		token, locked := tokens[d.id]
		switch {
		case d.final && d.at != nil:
			x.moves = append(x.moves, records.LifetimeMove{ID: d.id, From: d.at, Start: d.start})
		case d.final || !locked:
		default:
			if e := x.next(d, token); e.Over(x.now) && (!e.Start || token.until == nil) {
				why[d.id] = e
			} else {
				x.move(d, token, e)
			}
		}
	}
	for _, id := range ids {
		if !known[id] {
			x.forget([]int64{id})
		}
	}
	return x.expire(why, found, tokens)
}

// next returns when a task expires, by its options and its type as they are now.
func (x *expiry) next(d dueTask, token tokenRow) asyncflow.Expiry {
	life := d.options.Lifetime
	switch {
	case life.Ended(x.now):
		return life.End()
	case !x.t.HasLifetime(&d.options):
		return asyncflow.Expiry{}
	case token.attempt > 1 || token.reason == asyncflow.WaitChildren || d.begunInStage:
		return life.End()
	}
	return x.t.Expiry(&d.options, token.stage, token.since, !d.begun)
}

// leasedLook is how long after a look at a leased task the next one is due at the latest: if its
// attempt is given back, that writes no row, and the task has not begun.
const leasedLook = 10 * time.Second

// move notes when a task expires that goes on. Whether a leased task has begun, its attempt shows.
func (x *expiry) move(d dueTask, token tokenRow, e asyncflow.Expiry) {
	if e.At.IsZero() && d.at == nil {
		return
	}
	if e.Start && token.until != nil {
		e.At = later(*token.until, x.now.Add(time.Second))
		if last := x.now.Add(leasedLook); e.At.After(last) {
			e.At = last
		}
	}
	x.moves = append(x.moves, records.LifetimeMove{ID: d.id, From: d.at, Start: d.start,
		To: records.NewLifetime(x.t, d.id, e, token.seq-1)})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// expire ends tasks of one roll with locked token rows.
func (x *expiry) expire(
	why map[int64]asyncflow.Expiry, found []dueTask, tokens map[int64]tokenRow,
) error {
	if len(why) == 0 {
		return nil
	}
	settled := make([]asyncflow.Settlement, 0, len(why))
	taken := make([]tokenRow, 0, len(why))
	for _, d := range found {
		e, ends := why[d.id]
		if !ends {
			continue
		}
		token := tokens[d.id]
		l := asyncflow.Lease{ID: asyncflow.TaskID{Type: x.t.Name, Number: d.id}, Seq: token.seq,
			Stage: token.stage, Attempt: token.attempt, Options: d.options, CreatedAt: d.created,
			Node: token.node, Worker: token.worker}
		o := asyncflow.LateOutcome(e)
		settled = append(settled, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(x.t.TaskType, l, o, x.now)})
		taken = append(taken, token)
	}
	if err := x.deleteTokens(taken); err != nil {
		return err
	}
	x.settled = append(x.settled, settled...)
	return writeEnded(x.ctx, x.tx, x.t, settled, x.now)
}
