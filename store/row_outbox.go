package store

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// outboxKind is what is left to do after a transaction.
type outboxKind string

const (
	outboxEnded     outboxKind = "ended"     // a task has ended that others may depend on
	outboxLook      outboxKind = "look"      // edges of a task may have closed
	outboxSubmitted outboxKind = "submitted" // a task with dependencies was submitted by SQL
	outboxChildren  outboxKind = "children"  // children of a task have ended
	outboxSpawn     outboxKind = "spawn"     // children of a task are to be made, or redriven
	outboxStop      outboxKind = "stop"      // children of a task are to be cancelled
	outboxPause     outboxKind = "pause"     // a task's children were paused, or resumed
)

// outboxRow is a row of outbox.
type outboxRow struct {
	seq    int64   // of a row that was read
	locked *fanOut // that a row is about that was read; nil: none, or it is locked by others
	kind   outboxKind
	due    time.Time // zero: now
	number int32     // of the type
	id     int64
	fanOut int16    // seq of a fan-out of that task
	ended  children // how many children have ended, for outboxChildren
	at     int      // the index at which to go on
}

// children counts children of a task that have ended.
type children struct{ succeeded, failed, cancelled int }

func (c children) sum() int { return c.succeeded + c.failed + c.cancelled }

func (c *children) add(o children) {
	c.succeeded += o.succeeded
	c.failed += o.failed
	c.cancelled += o.cancelled
}

func childEnded(status asyncflow.Status) (c children) {
	switch status {
	case asyncflow.StatusSucceeded:
		c.succeeded = 1
	case asyncflow.StatusFailed:
		c.failed = 1
	case asyncflow.StatusCancelled:
		c.cancelled = 1
	}
	return c
}

// needsFollowUp reports whether something is left to do after a settlement.
func needsFollowUp(t *Type, s *asyncflow.Settlement) bool {
	return s.Verdict.Kind == asyncflow.Spawn ||
		s.Verdict.Final() != "" && (s.Lease.Options.Child != nil || t.Awaited())
}

// addFollowUp adds what is left to do after a settlement, and reports whether there is anything.
func (r *rows) addFollowUp(t *Type, s *asyncflow.Settlement) bool {
	r.removeVoter(t, s)
	if !needsFollowUp(t, s) {
		return false
	}
	r.tables = t.set.tables
	id, final := s.Lease.ID.Number, s.Verdict.Final()
	switch child := s.Lease.Options.Child; {
	case s.Verdict.Kind == asyncflow.Spawn:
		seq := int16(s.Lease.Seq + 1)
		r.fanOuts = append(r.fanOuts, fanOutRow{t.number, id, seq, s})
		r.outbox = append(r.outbox, outboxRow{kind: outboxSpawn, number: t.number, id: id, fanOut: seq})
	case child != nil:
		r.addChild(t.number, child, childEnded(final))
	}
	if final != "" && t.Awaited() {
		r.outbox = append(r.outbox, outboxRow{kind: outboxEnded, number: t.number, id: id})
	}
	return true
}

// addChild adds up the children of a task that end in the transaction.
func (r *rows) addChild(number int32, child *asyncflow.Child, ended children) {
	key := fanOutKey{number, child.Parent, int16(child.Seq)}
	if r.children == nil {
		r.children = map[fanOutKey]int{}
	}
	i, ok := r.children[key]
	if !ok {
		i = len(r.outbox)
		r.children[key] = i
		r.outbox = append(r.outbox, outboxRow{kind: outboxChildren, number: key.number, id: key.id,
			fanOut: key.seq})
	}
	r.outbox[i].ended.add(ended)
}

// fanOutKey names a fan-out: its task, and the seq of that task's row in wait.
type fanOutKey struct {
	number int32
	id     int64
	seq    int16
}

// fanOutRow is a new row of fan_outs.
type fanOutRow struct {
	number  int32
	id      int64
	seq     int16
	settled *asyncflow.Settlement
}

func queueFanOut(b *pgx.Batch, t *tables, r fanOutRow) {
	out := r.settled.Outcome.FannedOut
	rule, err := json.Marshal(out.FanOut)
	if err != nil {
		panic(err) // numbers and strings
	}
	b.Queue(t.at(0, `INSERT INTO {fan_outs} (type, id, seq, waits, stage, rule, count)
		VALUES ($1, $2, $3, $3, $4, $5::text::json, $6)`), r.number, r.id, r.seq, r.settled.Lease.Stage,
		string(rule), out.Count)
}

// insertOutboxSQL adds rows of outbox.
const insertOutboxSQL = `
INSERT INTO {outbox} (kind, due, type, id, fan_out, succeeded, failed, cancelled, at)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::int[], $4::bigint[], $5::smallint[],
  $6::int[], $7::int[], $8::int[], $9::int[])`

func queueOutbox(b *pgx.Batch, t *tables, rows []outboxRow, now time.Time) {
	b.Queue(t.at(0, insertOutboxSQL),
		column(rows, func(r *outboxRow) string { return string(r.kind) }),
		column(rows, func(r *outboxRow) time.Time {
			if r.due.IsZero() {
				return now
			}
			return r.due
		}),
		column(rows, func(r *outboxRow) int32 { return r.number }),
		column(rows, func(r *outboxRow) int64 { return r.id }),
		column(rows, func(r *outboxRow) int16 { return r.fanOut }),
		column(rows, func(r *outboxRow) int32 { return int32(r.ended.succeeded) }),
		column(rows, func(r *outboxRow) int32 { return int32(r.ended.failed) }),
		column(rows, func(r *outboxRow) int32 { return int32(r.ended.cancelled) }),
		column(rows, func(r *outboxRow) int32 { return int32(r.at) }))
}

func (r outboxRow) fanOutKey() fanOutKey { return fanOutKey{r.number, r.id, r.fanOut} }
