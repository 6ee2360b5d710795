package trees

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// One transaction ends a child and inserts the row of `outbox` that counts it. Another one deletes
// that row and adds it to the count. So in any snapshot the counts of a fan-out and its rows of
// `outbox` add up to the final children, and after the last child there is a row of `outbox`.
// Otherwise the task would wait for ever.

// OpenFanOuts returns a time that has come for each of some tenants with tasks that wait for
// children.
func (s *Trees) OpenFanOuts(ctx context.Context, tenants []string) (map[string]time.Time, error) {
	all, err := s.core.FirstTimes(ctx, tenants, `SELECT i, CASE WHEN
		EXISTS (SELECT FROM {schema}.fan_outs WHERE NOT closed) THEN to_timestamp(0) END`)
	return all, postgres.Wrap(err, "OpenFanOuts")
}

// SweepFanOuts compares the counts of fan-outs with their children, corrects wrong counts, and
// queues the follow-up of a fan-out if all of its children ended and nothing else would. It looks
// at up to JobBatch tasks that wait for children, and continues after them the next time. It
// returns how many fan-outs it corrected.
func (s *Trees) SweepFanOuts(ctx context.Context, tenant string) (n int, err error) {
	n, err = s.mendFanOuts(ctx, tenant)
	if n > 0 {
		s.core.TellFollowUp(tenant)
	}
	if config.RolledOn(err) {
		_ = s.core.Catalog.RefreshTenant(ctx, tenant)
	}
	return n, postgres.Wrap(err, "SweepFanOuts(%q)", tenant)
}

// mendFanOuts is SweepFanOuts without what follows from it.
func (s *Trees) mendFanOuts(ctx context.Context, tenant string) (n int, err error) {
	at := s.treeCursors.get(tenant)
	wrong, err := s.wrongFanOuts(ctx, tenant, &at)
	if err != nil {
		return 0, err
	}
	s.treeCursors.put(tenant, at)
	for _, w := range wrong {
		mended, failed := s.mendFanOut(ctx, tenant, w.FanOutKey)
		if mended {
			n++
		}
		err = errors.Join(err, failed) // the remaining ones are mended all the same
	}
	return n, err
}

// DryRunFanOuts counts the fan-outs that the next SweepFanOuts of this node would mend.
func (s *Trees) DryRunFanOuts(ctx context.Context, tenant string) ([]catalog.Due, error) {
	at := s.treeCursors.get(tenant)
	wrong, err := s.wrongFanOuts(ctx, tenant, &at)
	if err != nil || len(wrong) == 0 {
		return nil, postgres.Wrap(err, "DryRunFanOuts(%q)", tenant)
	}
	return []catalog.Due{{Tenant: tenant, Rows: len(wrong)}}, nil
}

// fanOutSweep is what SweepFanOuts does in a transaction.
type fanOutSweep struct{ *followUp }

// countedFanOut is a fan-out with what a snapshot says of its children.
type countedFanOut struct {
	records.FanOut
	t      *config.Type
	rows   int                 // of outbox that concern it
	toCome records.ChildCounts // the ends that these rows will add
	found  records.ChildCounts // the ended children
}

// wrong reports whether the counts differ from the children, or all children ended and nobody
// follows that up.
func (c *countedFanOut) wrong() bool {
	counted := c.Ended
	counted.Add(c.toCome)
	return counted != c.found ||
		c.rows == 0 && !c.Paused() && c.found.Sum() == c.Spawned
}

// wrongFanOuts returns the fan-outs with wrong counts among the next open ones, and moves the
// cursor.
func (s *Trees) wrongFanOuts(
	ctx context.Context, tenant string, at *records.FanOutKey,
) (wrong []*countedFanOut, err error) {
	err = s.inSnapshot(ctx, tenant, func(f fanOutSweep) error {
		all, err := f.openFanOuts(*at, catalog.JobBatch)
		if err != nil {
			return err
		}
		n := 0
		sum := 0
		for n < len(all) && (n == 0 || sum+all[n].Spawned <= s.chunks.count) {
			sum += all[n].Spawned
			n++
		}
		next := records.FanOutKey{}
		if n < len(all) || n == catalog.JobBatch {
			next = all[n-1].FanOutKey
		}
		if wrong, err = f.countChildren(all[:n]); err != nil {
			return err
		}
		*at = next
		return nil
	})
	return wrong, err
}

// inSnapshot runs do in a transaction with one snapshot for all statements.
func (s *Trees) inSnapshot(ctx context.Context, tenant string, do func(f fanOutSweep) error) error {
	f := fanOutSweep{s.newFollowUp(ctx, tenant)}
	return pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		f.tx = tx
		_, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
		if err != nil {
			return err
		}
		return do(f)
	})
}

// openFanOutsSQL reads open fan-outs after a key, with the sums of their rows of outbox.
const openFanOutsSQL = `
SELECT o.*, coalesce(b.n, 0), coalesce(b.succeeded, 0), coalesce(b.failed, 0),
  coalesce(b.cancelled, 0)
FROM (` + records.FanOutColumns + ` WHERE NOT closed AND (type, id, seq) > ($1, $2, $3)
  ORDER BY type, id, seq LIMIT $4) o
LEFT JOIN (SELECT type, id, fan_out, count(*) AS n, sum(succeeded) AS succeeded,
    sum(failed) AS failed, sum(cancelled) AS cancelled
  FROM {outbox} WHERE fan_out <> 0 GROUP BY type, id, fan_out) b
ON b.type = o.type AND b.id = o.id AND b.fan_out = o.seq
ORDER BY o.type, o.id, o.seq`

func (f fanOutSweep) openFanOuts(after records.FanOutKey, n int) (all []*countedFanOut, err error) {
	rows, _ := f.tx.Query(f.ctx, config.NewTables(f.tenant, config.SharedSet).SQL(0,
		openFanOutsSQL), after.Number,
		after.ID, after.Seq, n)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*countedFanOut, error) {
		c := &countedFanOut{}
		return c, row.Scan(append(c.Columns(), &c.rows, &c.toCome.Succeeded, &c.toCome.Failed,
			&c.toCome.Cancelled)...)
	})
}

// endedChildrenSQL counts the children of a run by the ends that they have now.
const endedChildrenSQL = `
SELECT count(*) FILTER (WHERE final = 'succeeded'), count(*) FILTER (WHERE final = 'failed'),
  count(*) FILTER (WHERE final = 'cancelled')
FROM (SELECT DISTINCT ON (id) final FROM {journal} WHERE type = $1 AND id BETWEEN $2 AND $3
  ORDER BY id, seq DESC) j`

// countChildren counts the final children, and returns the fan-outs with wrong counts. It leaves
// out fan-outs of deleted types, and fan-outs with children in rolls that are gone or that this
// node doesn't know yet.
func (f fanOutSweep) countChildren(all []*countedFanOut) (wrong []*countedFanOut, err error) {
	b := &pgx.Batch{}
	var counted []*countedFanOut
	for _, c := range all {
		c.t = f.types[c.Number]
		if !c.known(f.types) {
			continue
		}
		counted = append(counted, c)
		c.found.Cancelled = c.Spawned // of children that can't be made
		for _, r := range c.Runs(0, c.Spawned) {
			c.found.Cancelled -= r.N
			t := f.types.ofChildren(c.t, r)
			b.Queue(t.SQL(r.Position(), endedChildrenSQL), t.Number(), r.First, r.Last()).
				QueryRow(func(row pgx.Row) error {
					var ended records.ChildCounts
					err := row.Scan(&ended.Succeeded, &ended.Failed, &ended.Cancelled)
					c.found.Add(ended)
					return err
				})
		}
	}
	if err := f.tx.SendBatch(f.ctx, b).Close(); err != nil {
		return nil, err
	}
	for _, c := range counted {
		if c.wrong() {
			wrong = append(wrong, c)
		}
	}
	return wrong, nil
}

// known reports whether all children are in rolls that this node knows.
func (c *countedFanOut) known(types typesOf) bool {
	if c.t == nil {
		return false
	}
	for _, r := range c.Runs(0, c.Spawned) {
		if t := types.ofChildren(c.t, r); t == nil || !t.Has(r.Position()) {
			return false
		}
	}
	return true
}

// mendFanOut sets the counts of a fan-out so that they are right with what its rows of outbox add,
// and queues its follow-up. It reports whether it did: another transaction may change it at the
// same time.
func (s *Trees) mendFanOut(
	ctx context.Context, tenant string, key records.FanOutKey,
) (bool, error) {
	var mended *countedFanOut
	err := s.inSnapshot(ctx, tenant, func(f fanOutSweep) error {
		// If it was changed after the snapshot, this fails.
		tag, err := f.tx.Exec(ctx, config.NewTables(tenant, config.SharedSet).SQL(0,
			`SELECT FROM {fan_outs}
			WHERE type = $1 AND id = $2 AND seq = $3 AND NOT closed FOR UPDATE SKIP LOCKED`),
			key.Number, key.ID, key.Seq)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		all, err := f.openFanOuts(records.FanOutKey{Number: key.Number, ID: key.ID, Seq: key.Seq -
			1}, 1)
		if err != nil {
			return err
		}
		wrong, err := f.countChildren(all)
		if err != nil || len(wrong) == 0 {
			return err
		}
		mended = wrong[0]
		return f.mend(mended)
	})
	if postgres.State(err) == pgerrcode.SerializationFailure {
		return false, nil
	}
	if err != nil || mended == nil {
		return false, err
	}
	s.core.Log.Warn("the counts of a task's children were wrong, or not followed up: corrected",
		"tenant", tenant, "type", mended.t.Name, "task", mended.ID, "children", mended.Spawned,
		"counted", mended.Ended.Sum()+mended.toCome.Sum(), "ended", mended.found.Sum())
	return true, nil
}

// mend writes the right counts of a fan-out with an entry in the audit, and queues a look at it.
func (f fanOutSweep) mend(c *countedFanOut) error {
	if err := audit.Insert(f.ctx, f.tx, f.tenant, f.correction(c)); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(c.t.SQL(0, `UPDATE {fan_outs} SET succeeded = $4, failed = $5, cancelled = $6
		WHERE type = $1 AND id = $2 AND seq = $3`), c.Number, c.ID, c.Seq,
		c.found.Succeeded-c.toCome.Succeeded, c.found.Failed-c.toCome.Failed,
		c.found.Cancelled-c.toCome.Cancelled)
	records.QueueOutbox(b, c.t.Set().Tables,
		[]records.OutboxRow{{Kind: records.OutboxSpawn, Number: c.Number, ID: c.ID,
			FanOut: c.Seq}}, f.now)
	return f.tx.SendBatch(f.ctx, b).Close()
}

// correction returns the entry in the audit for a fan-out that is mended.
func (f fanOutSweep) correction(c *countedFanOut) asyncflow.AuditEntry {
	return audit.NewCall(f.tenant,
		asyncflow.AuditEntry{At: f.now, Origin: asyncflow.AuditFromNode,
			Tenant: f.tenant, Subject: f.s.core.Config.Node, Action: asyncflow.AuditChildren,
			ObjectType: "task", Object: asyncflow.TaskID{Type: c.t.Name, Number: c.ID}.String(),
			Outcome: asyncflow.AuditDone,
			Detail: map[string]any{"children": c.Spawned, "counted": c.Ended.Sum() + c.toCome.Sum(),
				"ended": c.found.Sum()}}).AuditEntry
}
