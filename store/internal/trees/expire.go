package trees

import (
	"context"
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
// moves the lifetimes of other ones on: they have begun in time, or have ended.
func Expire(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, now time.Time,
) (Expired, error) {
	x := &expiry{ctx: ctx, tx: tx, t: t, now: now}
	for position, ids := range config.ByPosition(ids) {
		if !t.Has(position) { // its tables were dropped
			x.forget(ids)
			continue
		}
		if err := x.roll(ids); err != nil {
			return Expired{}, err
		}
	}
	b := &pgx.Batch{}
	records.QueueLifetimes(b, t.Set().Tables, x.rows, now)
	return Expired{x.settled, len(x.rows)}, tx.SendBatch(ctx, b).Close()
}

// ExpireSoon is Expire in a transaction of its own. What it can't do, the job expire does.
func ExpireSoon(ctx context.Context, s *Trees, t *config.Type, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	var expired Expired
	err := s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		return pgx.BeginFunc(ctx, s.core.DB(t.Tenant), func(tx pgx.Tx) (err error) {
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
	rows    []records.LifetimeRow // that change
}

// forget drops the rows of tasks that expire no more.
func (x *expiry) forget(ids []int64) {
	for _, id := range ids {
		x.rows = append(x.rows, records.LifetimeRow{Number: x.t.Number(), ID: id})
	}
}

// roll looks at due tasks of one roll.
func (x *expiry) roll(ids []int64) error {
	found, err := x.read(ids)
	if err != nil {
		return err
	}
	known := make(map[int64]dueTask, len(found))
	var ending, starting []int64
	for _, d := range found {
		known[d.id] = d
		switch {
		case d.final:
			x.forget([]int64{d.id})
		case d.options.Lifetime.Ended(x.now):
			ending = append(ending, d.id)
		case d.start == nil || d.began: // it began in time
			x.rows = append(x.rows, records.NewLifetime(x.t, d.id, d.options.Lifetime.End(), 0))
		case d.leased != nil: // whether it has begun, its attempt shows
			x.rows = append(x.rows, records.LifetimeRow{Number: x.t.Number(), ID: d.id,
				At: later(*d.leased, x.now.Add(time.Second)), Start: d.start})
		default:
			starting = append(starting, d.id)
		}
	}
	for _, id := range ids {
		if _, ok := known[id]; !ok {
			x.forget([]int64{id})
		}
	}
	return x.expire(ending, starting, known)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// dueTask is a task at the end of its lifetime.
type dueTask struct {
	id      int64
	at      time.Time // that end
	start   *int16
	created time.Time
	options asyncflow.Options
	final   bool
	began   bool       // an attempt, since the row start of its journal
	leased  *time.Time // when its lease runs out; nil: it has none
}

// dueTasksSQL reads due tasks of one roll, in their order.
var dueTasksSQL = `
SELECT t.id, l.expires_at, l.start, t.created_at, coalesce({options}, '{}'),
  coalesce((SELECT j.final IS NOT NULL FROM {journal} j WHERE j.type = t.type AND j.id = t.id
    ORDER BY j.seq DESC LIMIT 1), false),
  l.start IS NOT NULL AND EXISTS (SELECT FROM {journal} j WHERE j.type = t.type AND j.id = t.id
    AND j.seq > l.start AND j.outcome NOT IN (` + asyncflow.NotBegun + `)),
  (SELECT k.until FROM {lease} k WHERE k.type = t.type AND k.id = t.id)
FROM {task} t JOIN {lifetimes} l ON l.type = t.type AND l.id = t.id
WHERE t.type = $2 AND t.id = ANY ($1) ORDER BY t.id`

func (x *expiry) read(ids []int64) ([]dueTask, error) {
	rows, _ := x.tx.Query(x.ctx,
		x.t.SQL(asyncflow.TaskID{Number: ids[0]}.Position(), dueTasksSQL), ids, x.t.Number())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d dueTask, err error) {
		return d, row.Scan(&d.id, &d.at, &d.start, &d.created, &d.options, &d.final, &d.began,
			&d.leased)
	})
}

// expire ends tasks of one roll: some wherever they are, others only if they are not leased. A task
// with a token row that just moves to another table is left to the next step.
func (x *expiry) expire(ending, starting []int64, known map[int64]dueTask) error {
	if len(ending)+len(starting) == 0 {
		return nil
	}
	if err := LockFanOuts(x.ctx, x.tx, x.t, ending); err != nil {
		return err
	}
	var taken []asyncflow.Lease
	for _, some := range []struct {
		ids  []int64
		take func(context.Context, pgx.Tx, *config.Type, []int64) ([]asyncflow.Lease, error)
	}{{ending, records.TakeAnyTokens}, {starting, records.TakeRestingTokens}} {
		if len(some.ids) == 0 {
			continue
		}
		leases, err := some.take(x.ctx, x.tx, x.t, some.ids)
		if err != nil {
			return err
		}
		taken = append(taken, leases...)
	}
	if len(taken) == 0 {
		return nil
	}
	var settled []asyncflow.Settlement
	for _, l := range taken {
		d := known[l.ID.Number]
		l.Options = d.options
		l.CreatedAt = d.created
		l.Stage, l.Attempt = x.t.Place(l.Stage, l.Attempt)
		e := asyncflow.Expiry{At: d.at, Start: d.start != nil}
		if l.Options.Lifetime.Ended(x.now) {
			e = l.Options.Lifetime.End()
		}
		o := asyncflow.LateOutcome(e)
		settled = append(settled, asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(x.t.TaskType, l, o, x.now)})
	}
	x.settled = append(x.settled, settled...)
	x.forget(records.Column(settled,
		func(s *asyncflow.Settlement) int64 { return s.Lease.ID.Number }))
	return WriteEnded(x.ctx, x.tx, x.t, settled, x.now)
}
