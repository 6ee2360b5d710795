package claims

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A stage's window limits how many distinct tasks one claimer is shown within its length. A
// claimer's row in claim_windows lists the tasks that it was shown, and when. Reads and writes of
// the row take the lock of the claimer, because before the first write there is no row to lock.

// shown are the tasks that a claimer was shown lately, and when each was so last.
type shown map[int64]time.Time

// left returns how many other tasks the claimer may be shown, and when one more is allowed.
func (s shown) left(w asyncflow.Window) (n int, opens time.Time) {
	if n = w.Tasks - len(s); n > 0 {
		return n, opens
	}
	var all []time.Time
	for _, at := range s {
		all = append(all, at)
	}
	slices.SortFunc(all, time.Time.Compare)
	// There are more than w.Tasks after the window was made smaller.
	return 0, all[len(all)-w.Tasks].Add(w.Per.Std())
}

// windowsSQL reads the windows of some claimers.
const windowsSQL = `
SELECT claimer, ids, shown FROM {claim_windows}
WHERE type = $1 AND stage = $2 AND claimer = ANY ($3)`

// lockClaimers begins the transaction, locks the claimers until its end, and reads their windows.
func (c *claiming) lockClaimers(ctx context.Context, conn *postgres.TenantConn) error {
	numbers := make([]int32, len(c.asks))
	claimers := make([]string, len(c.asks))
	c.shown = map[string]shown{}
	for i, a := range c.asks {
		claimers[i] = a.Claimer
		numbers[i] = catalog.ClaimerNumber(c.t, c.stage, a.Claimer)
		c.shown[a.Claimer] = shown{}
	}
	slices.Sort(numbers)
	b := &pgx.Batch{}
	b.Queue("BEGIN")
	c.locked = catalog.QueueLocks(b, c.t.Set().Tables, catalog.ClaimerLock,
		slices.Compact(numbers)...)
	if c.window == nil {
		return conn.Send(ctx, b)
	}
	b.Queue(c.t.SQL(0, windowsSQL), c.t.Number(), c.stage,
		claimers).Query(func(rows pgx.Rows) error {
		var claimer string
		var ids []int64
		var at []time.Time
		_, err := pgx.ForEachRow(rows, []any{&claimer, &ids, &at}, func() error {
			for i, id := range ids {
				if at[i].After(c.now.Add(-c.window.Per.Std())) {
					c.shown[claimer][id] = at[i]
				}
			}
			return nil
		})
		return err
	})
	return conn.Send(ctx, b)
}

// putWindowSQL replaces the window of a claimer.
const putWindowSQL = `
INSERT INTO {claim_windows} (type, stage, claimer, ids, shown, until)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (type, stage, claimer) DO UPDATE
SET ids = excluded.ids, shown = excluded.shown, until = excluded.until`

// queueWindows writes what is shown to each claimer.
func (c *claiming) queueWindows(b *pgx.Batch, w asyncflow.Window) {
	for _, a := range c.asks {
		if len(a.Leases) == 0 {
			continue
		}
		all := c.shown[a.Claimer]
		for _, l := range a.Leases {
			all[l.ID.Number] = c.now
		}
		var ids []int64
		var at []time.Time
		for id, when := range all {
			ids = append(ids, id)
			at = append(at, when)
		}
		b.Queue(c.t.SQL(0, putWindowSQL), c.t.Number(), c.stage, a.Claimer, ids, at,
			c.now.Add(w.Per.Std()))
	}
}

// takeShownSQL takes tasks of a stage by their numbers, if they are due.
const takeShownSQL = `
DELETE FROM {wait} w WHERE ctid = ANY (ARRAY(
  SELECT k.ctid FROM unnest($4::bigint[]) AS u (id), {wait} k
  WHERE k.type = $1 AND k.id BETWEEN u.id AND u.id AND k.stage = $2 AND k.until = 'infinity'
    AND k.reason <> 'flow_key' AND k.order_time <= $3
  ORDER BY k.id
  FOR UPDATE OF k SKIP LOCKED))
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.since, w.order_time),
  coalesce(w.key, ''), w.rules::text`

// queueTakeShown takes the tasks in line that the claimers were shown before, if their windows
// allow fewer new tasks than they ask for: the shown tasks count already.
func (c *claiming) queueTakeShown(b *pgx.Batch) {
	if c.window == nil {
		return
	}
	var ids []int64
	for _, a := range c.asks {
		if left, _ := c.leftInWindow(a); left < a.N {
			ids = slices.AppendSeq(ids, maps.Keys(c.shown[a.Claimer]))
		}
	}
	if len(ids) == 0 {
		return
	}
	c.queueTaken(b, &c.found, takeShownSQL, ids)
}
