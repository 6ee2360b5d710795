package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// A child's end and the row of outbox that counts it are one transaction, and so are the end of
// that row and the count. So in any snapshot the counts of a fan-out and its rows of outbox add up
// to the children that have ended, and a task whose children have ended has a row of outbox. Where
// that is not so, the task would wait for ever.

// OpenFanOuts returns a time that has come for each of some tenants with tasks that wait for
// children.
func (s *Store) OpenFanOuts(ctx context.Context, tenants []string) (map[string]time.Time, error) {
	all, err := s.firstTimes(ctx, tenants, `SELECT i, CASE WHEN
		EXISTS (SELECT FROM {schema}.fan_outs WHERE NOT closed) THEN to_timestamp(0) END`)
	return all, wrap(err, "OpenFanOuts")
}

// SweepFanOuts compares the counts of fan-outs with their children, corrects wrong counts, and has
// a fan-out followed up if all of its children have ended and nothing else would. It looks at up to
// JobBatch tasks that wait for children, and continues after them the next time. It returns how
// many fan-outs it corrected.
func (s *Store) SweepFanOuts(ctx context.Context, tenant string) (n int, err error) {
	at := s.treeCursors.get(tenant)
	wrong, err := s.wrongFanOuts(ctx, tenant, &at)
	if err == nil {
		s.treeCursors.put(tenant, at)
	}
	for _, w := range wrong {
		mended, failed := s.mendFanOut(ctx, tenant, w.fanOutKey)
		if mended {
			n++
		}
		err = errors.Join(err, failed) // others are mended all the same
	}
	if n > 0 {
		s.tellFollowUp(tenant)
	}
	if rolledOn(err) {
		_ = s.Catalog.RefreshTenant(ctx, tenant)
	}
	return n, wrap(err, "SweepFanOuts(%q)", tenant)
}

// DryRunFanOuts counts the fan-outs that the next SweepFanOuts of this node would mend.
func (s *Store) DryRunFanOuts(ctx context.Context, tenant string) ([]Due, error) {
	at := s.treeCursors.get(tenant)
	wrong, err := s.wrongFanOuts(ctx, tenant, &at)
	if err != nil || len(wrong) == 0 {
		return nil, wrap(err, "DryRunFanOuts(%q)", tenant)
	}
	return []Due{{Tenant: tenant, Rows: len(wrong)}}, nil
}

// countedFanOut is a fan-out with what a snapshot says of its children.
type countedFanOut struct {
	fanOut
	t      *Type
	rows   int      // of outbox that concern it
	toCome children // the ends that these rows will add
	found  children // the children that have ended
}

// wrong reports whether the counts differ from the children, or all have ended and nobody follows
// that up.
func (c *countedFanOut) wrong() bool {
	counted := c.ended
	counted.add(c.toCome)
	return counted != c.found ||
		c.rows == 0 && !c.paused() && c.found.sum() == c.spawned
}

// wrongFanOuts returns those of the next open fan-outs whose counts are wrong, and moves the
// cursor.
func (s *Store) wrongFanOuts(
	ctx context.Context, tenant string, at *fanOutKey,
) (wrong []*countedFanOut, err error) {
	err = s.inSnapshot(ctx, tenant, func(f *followUp) error {
		all, err := f.openFanOuts(*at, JobBatch)
		if err != nil {
			return err
		}
		n, sum := 0, 0
		for n < len(all) && (n == 0 || sum+all[n].spawned <= s.chunks.count) {
			sum += all[n].spawned
			n++
		}
		next := fanOutKey{}
		if n < len(all) || n == JobBatch {
			next = all[n-1].fanOutKey
		}
		if wrong, err = f.countChildren(all[:n]); err == nil {
			*at = next
		}
		return err
	})
	return wrong, err
}

// inSnapshot runs do in a transaction all of whose statements see the same.
func (s *Store) inSnapshot(
	ctx context.Context, tenant string, do func(f *followUp) error,
) error {
	f := s.newFollowUp(ctx, tenant)
	return pgx.BeginFunc(ctx, s.of(tenant), func(tx pgx.Tx) error {
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
FROM (` + fanOutColumns + ` WHERE NOT closed AND (type, id, seq) > ($1, $2, $3)
  ORDER BY type, id, seq LIMIT $4) o
LEFT JOIN (SELECT type, id, fan_out, count(*) AS n, sum(succeeded) AS succeeded,
    sum(failed) AS failed, sum(cancelled) AS cancelled
  FROM {outbox} WHERE fan_out <> 0 GROUP BY type, id, fan_out) b
ON b.type = o.type AND b.id = o.id AND b.fan_out = o.seq
ORDER BY o.type, o.id, o.seq`

func (f *followUp) openFanOuts(after fanOutKey, n int) (all []*countedFanOut, err error) {
	rows, err := f.tx.Query(f.ctx, newTables(f.tenant, sharedSet).at(0, openFanOutsSQL), after.number,
		after.id, after.seq, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*countedFanOut, error) {
		c := &countedFanOut{}
		return c, row.Scan(append(c.columns(), &c.rows, &c.toCome.succeeded, &c.toCome.failed,
			&c.toCome.cancelled)...)
	})
}

// endedChildrenSQL counts the children of a run by the ends that they have now.
const endedChildrenSQL = `
SELECT count(*) FILTER (WHERE final = 'succeeded'), count(*) FILTER (WHERE final = 'failed'),
  count(*) FILTER (WHERE final = 'cancelled')
FROM (SELECT DISTINCT ON (id) final FROM {journal} WHERE type = $1 AND id BETWEEN $2 AND $3
  ORDER BY id, seq DESC) j`

// countChildren counts the children that have ended, and returns the fan-outs whose counts are
// wrong. It leaves out those of deleted types, and those with children in rolls that are gone, or
// that this node doesn't know yet.
func (f *followUp) countChildren(all []*countedFanOut) (wrong []*countedFanOut, err error) {
	b, counted := &pgx.Batch{}, []*countedFanOut(nil)
	for _, c := range all {
		c.t = f.types[c.number]
		if !c.known() {
			continue
		}
		counted = append(counted, c)
		for _, r := range c.runs(0, c.spawned) {
			b.Queue(c.t.at(r.position(), endedChildrenSQL), c.number, r.first, r.last()).
				QueryRow(func(row pgx.Row) error {
					var ended children
					err := row.Scan(&ended.succeeded, &ended.failed, &ended.cancelled)
					c.found.add(ended)
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
func (c *countedFanOut) known() bool {
	if c.t == nil {
		return false
	}
	for _, r := range c.runs(0, c.spawned) {
		if !c.t.Has(r.position()) {
			return false
		}
	}
	return true
}

// mendFanOut sets the counts of a fan-out so that they are right with what its rows of outbox add,
// and has it followed up. It reports whether it did: another transaction may have changed it, or be
// about to.
func (s *Store) mendFanOut(ctx context.Context, tenant string, key fanOutKey) (bool, error) {
	var mended *countedFanOut
	err := s.inSnapshot(ctx, tenant, func(f *followUp) error {
		// If it was changed after the snapshot, this fails.
		tag, err := f.tx.Exec(ctx, newTables(tenant, sharedSet).at(0, `SELECT FROM {fan_outs}
			WHERE type = $1 AND id = $2 AND seq = $3 AND NOT closed FOR UPDATE SKIP LOCKED`), key.number,
			key.id, key.seq)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		all, err := f.openFanOuts(fanOutKey{key.number, key.id, key.seq - 1}, 1)
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
	if sqlState(err) == pgerrcode.SerializationFailure {
		return false, nil
	}
	if err != nil || mended == nil {
		return false, err
	}
	s.log.Warn("the counts of a task's children were wrong, or not followed up: corrected",
		"tenant", tenant, "type", mended.t.Name, "task", mended.id, "children", mended.spawned,
		"counted", mended.ended.sum()+mended.toCome.sum(), "ended", mended.found.sum())
	return true, nil
}

// mend writes the right counts of a fan-out with an entry in the audit, and has it looked at.
func (f *followUp) mend(c *countedFanOut) error {
	if err := insertAudit(f.ctx, f.tx, f.tenant, f.correction(c)); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(c.t.at(0, `UPDATE {fan_outs} SET succeeded = $4, failed = $5, cancelled = $6
		WHERE type = $1 AND id = $2 AND seq = $3`), c.number, c.id, c.seq,
		c.found.succeeded-c.toCome.succeeded, c.found.failed-c.toCome.failed,
		c.found.cancelled-c.toCome.cancelled)
	queueOutbox(b, c.t.set.tables, []outboxRow{{kind: outboxSpawn, number: c.number, id: c.id,
		fanOut: c.seq}}, f.now)
	return f.tx.SendBatch(f.ctx, b).Close()
}

// correction returns the entry in the audit for a fan-out that is mended.
func (f *followUp) correction(c *countedFanOut) asyncflow.AuditEntry {
	return NewAuditedCall(f.tenant, asyncflow.AuditEntry{At: f.now, Origin: asyncflow.AuditFromNode,
		Tenant: f.tenant, Subject: f.s.cfg.Node, Action: asyncflow.AuditChildren, ObjectType: "task",
		Object:  asyncflow.TaskID{Type: c.t.Name, Number: c.id}.String(),
		Outcome: asyncflow.AuditDone,
		Detail: map[string]any{"children": c.spawned, "counted": c.ended.sum() + c.toCome.sum(),
			"ended": c.found.sum()}}).AuditEntry
}
