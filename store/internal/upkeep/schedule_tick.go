package upkeep

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/timetable"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

// How a tick gets exactly one task, also after a crash: the node locks the schedule's row while it
// submits the task, so that no other node submits it. The task's key names the tick. So another
// submit, after a crash before the row was updated, gives the same task. The key is kept for half a
// year, or until the row was updated.

const (
	// tickSchedules is how many schedules one transaction takes. It takes no more after
	// tickTasks tasks or tickBytes bytes of contexts.
	tickSchedules = 50
	tickTasks     = 500
	tickBytes     = 4 << 20
	// tickPatience bounds the time in which a round decides and submits. Its transaction is idle
	// meanwhile, so it is shorter than idle_in_transaction_session_timeout: a round that submits
	// nothing in time can still write why.
	tickPatience = 4 * time.Second
	// tickKeyKept is how long a tick's key is kept after the row was updated.
	tickKeyKept = 24 * time.Hour
	// maxTickError bounds the error of a schedule in bytes.
	maxTickError = 1000
)

// FirstTicks returns when the first schedule of each of some tenants is due. It leaves out tenants
// without schedules that tick, and suspended ones: their ticks stay due.
func (s *Upkeep) FirstTicks(ctx context.Context, tenants []string) (map[string]time.Time, error) {
	active := slices.DeleteFunc(slices.Clone(tenants), s.core.SuspendedTenant)
	all, err := s.core.FirstTimes(ctx, active,
		`SELECT i, min(next_at) FROM {schema}.schedules WHERE paused_at IS NULL`)
	return all, postgres.Wrap(err, "FirstTicks")
}

// Ticked says what one round through the schedules of a tenant did.
type Ticked struct {
	Schedules int      // that were due and not locked by another node
	Tasks     int      // of their ticks
	Failed    []string // schedules with tasks that can't be submitted now
}

// TickSchedules submits the tasks of due ticks of some schedules of a tenant, first due first,
// except the schedules that are named. There is nothing left to do when Schedules is 0. It logs
// failed schedules, which stay due. It calls submit within its transaction, with a context that
// ends after tickPatience.
func (s *Upkeep) TickSchedules(
	ctx context.Context, tenant string, submit catalog.Submit, except []string,
) (out Ticked, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		r := round{store: s, tenant: tenant, now: s.core.Clock.Now()}
		if err := r.lock(ctx, tx, except); err != nil {
			return err
		}
		r.prepare(ctx, submit)
		if err := r.write(ctx, tx); err != nil {
			return err
		}
		out = r.result()
		return nil
	})
	return out, postgres.Wrap(err, "TickSchedules(%q)", tenant)
}

// round is one round through the schedules of a tenant.
type round struct {
	store     *Upkeep
	tenant    string
	now       time.Time
	schedules []*scheduleTicks
}

// scheduleTicks holds the ticks of one schedule in a round.
type scheduleTicks struct {
	settings.StoredSchedule
	run     []time.Time // ticks that get tasks now
	rest    time.Time   // the first tick left for later; zero: no due one
	table   timetable.Timetable
	skipped []time.Time
	done    int // for how many ticks of run there are tasks
	err     error
}

// lock locks and reads due schedules. It skips a schedule that another node holds locked, or with a
// type that is being changed or deleted. It also locks the types' rows, so that a deletion of a
// type waits and doesn't deadlock.
func (r *round) lock(ctx context.Context, tx pgx.Tx, except []string) error {
	var err error
	rows, _ := tx.Query(ctx, `
		SELECT `+settings.ScheduleColumns+` FROM `+settings.SchedulesOf(r.tenant)+` s
		JOIN `+postgres.Quote(schema.Of(r.tenant))+`.task_types tt ON tt.name = s.type
		WHERE s.paused_at IS NULL AND s.next_at <= $1 AND (s.name = ANY ($2)) IS NOT TRUE
		ORDER BY s.next_at, s.name LIMIT $3
		FOR UPDATE OF s SKIP LOCKED FOR KEY SHARE OF tt SKIP LOCKED`, r.now, except, tickSchedules)
	r.schedules, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*scheduleTicks, error) {
		stored, err := settings.ScanSchedule(row)
		return &scheduleTicks{StoredSchedule: stored}, err
	})
	return err
}

// prepare decides which ticks get tasks now, and submits these.
func (r *round) prepare(ctx context.Context, submit catalog.Submit) {
	ctx, cancel := context.WithTimeout(ctx, tickPatience)
	defer cancel()
	r.plan(ctx)
	r.submit(ctx, submit)
}

// write moves the schedules past the ticks that were processed.
func (r *round) write(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	for _, t := range r.schedules {
		r.writeError(b, t)
		switch {
		case t.err != nil && t.done == 0:
			continue
		case t.rest.IsZero():
			t.rest = t.table.Next(r.now)
		}
		if n := len(t.skipped); n > 0 {
			t.SkippedAt = t.skipped[n-1]
			r.store.core.Log.Info("ticks of a schedule were skipped: the task before is not final",
				"tenant", r.tenant, "schedule", t.Name, "ticks", n, "overlap", t.Overlap)
		}
		b.Queue(`UPDATE `+settings.SchedulesOf(r.tenant)+`
			SET next_at = $2, last_at = $3, last_id = $4,
			skipped = skipped + $5, skipped_at = $6 WHERE name = $1`,
			t.Name, postgres.OrNull(t.rest), postgres.OrNull(t.LastAt),
			postgres.OrNull(t.LastID.Number),
			len(t.skipped), postgres.OrNull(t.SkippedAt))
		if t.done > 0 {
			keys := make([]string, t.done)
			for i, tick := range t.run[:t.done] {
				keys[i] = t.TickTask(tick).Options.Key
			}
			b.Queue(`UPDATE `+postgres.Quote(schema.Of(r.tenant))+`.idempotency_keys
				SET expires_at = least(expires_at, $3) WHERE type = $1 AND key = ANY ($2)`,
				t.Type, keys, r.now.Add(tickKeyKept))
		}
	}
	return tx.SendBatch(ctx, b).Close()
}

// writeError writes why the task of a tick can't be submitted, or that it can again.
func (r *round) writeError(b *pgx.Batch, t *scheduleTicks) {
	why := ""
	if t.err != nil {
		why = "the task can't be submitted now; the log of the node says why"
	}
	var known *asyncflow.Error
	if errors.As(t.err, &known) {
		why = known.Detail()
	}
	why = strings.ToValidUTF8(why[:min(len(why), maxTickError)], "")
	if why == t.LastError || errors.Is(t.err, context.Canceled) {
		return
	}
	b.Queue(`UPDATE `+settings.SchedulesOf(r.tenant)+` SET last_error = $2,
		failed_at = CASE WHEN $2 <> '' THEN coalesce(failed_at, $3) END WHERE name = $1`,
		t.Name, why, r.now)
}

// result sums up the round, and logs failed schedules.
func (r *round) result() Ticked {
	out := Ticked{Schedules: len(r.schedules)}
	for _, t := range r.schedules {
		out.Tasks += t.done
		if t.err == nil {
			continue
		}
		out.Failed = append(out.Failed, t.Name)
		if !errors.Is(t.err, context.Canceled) {
			r.store.core.Log.Warn("the tasks of a schedule can't be submitted now; they stay due",
				"tenant", r.tenant, "schedule", t.Name, "error", t.err)
		}
	}
	return out
}
