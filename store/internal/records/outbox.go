package records

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// OutboxKind is what is left to do after a transaction.
type OutboxKind string

const (
	OutboxEnded     OutboxKind = "ended"     // the end of a task that others may depend on
	OutboxLook      OutboxKind = "look"      // edges of a task may be closed
	OutboxSubmitted OutboxKind = "submitted" // a task with dependencies was submitted by SQL
	OutboxChildren  OutboxKind = "children"  // children of a task ended
	OutboxSpawn     OutboxKind = "spawn"     // children of a task are to be made, or redriven
	OutboxStart     OutboxKind = "start"     // an attempt started tasks, which are to be made
	OutboxStop      OutboxKind = "stop"      // children of a task are to be cancelled
	OutboxPause     OutboxKind = "pause"     // a task's children were paused, or resumed
	OutboxPriority  OutboxKind = "priority"  // a task's children get another priority
	OutboxSignal    OutboxKind = "signal"    // a task may have a signal, or its wait may be over
	// a signal for a key that no task had; the id is that of the signal
	OutboxSignalKey OutboxKind = "signal_key"
	// tasks wait in stages of a type that has changed; the id is the last that was looked at
	OutboxSignalWaits OutboxKind = "signal_waits"
	OutboxFinal       OutboxKind = "final" // the end of a task is to be told; at is its seq
)

// OutboxRow is a row of outbox.
type OutboxRow struct {
	Seq    int64   // of a row that was read
	Locked *FanOut // that a row is about that was read; nil: none, or another transaction locks it
	Kind   OutboxKind
	Due    time.Time // zero: now
	Number int32     // of the type
	ID     int64
	FanOut int16       // seq of a fan-out of that task
	Ended  ChildCounts // how many children ended, for OutboxChildren
	// the index at which to go on; of OutboxStart and OutboxFinal the seq in the journal
	At int
}

// ChildCounts counts ended children of a task.
type ChildCounts struct{ Succeeded, Failed, Cancelled int }

// Sum returns how many children ended.
func (c ChildCounts) Sum() int { return c.Succeeded + c.Failed + c.Cancelled }

// Add adds other counts.
func (c *ChildCounts) Add(o ChildCounts) {
	c.Succeeded += o.Succeeded
	c.Failed += o.Failed
	c.Cancelled += o.Cancelled
}

// ChildEnded counts one ended child.
func ChildEnded(status asyncflow.Status) (c ChildCounts) {
	switch status {
	case asyncflow.StatusSucceeded:
		c.Succeeded = 1
	case asyncflow.StatusFailed:
		c.Failed = 1
	case asyncflow.StatusCancelled:
		c.Cancelled = 1
	}
	return c
}

// NeedsFollowUp reports whether something is left to do after a settlement.
func NeedsFollowUp(t *config.Type, s *asyncflow.Settlement) bool {
	if s.Verdict.Kind == asyncflow.Spawn || awaitsSignal(s) || starts(s) {
		return true
	}
	_, waits := s.Lease.Options.ParentWaits(t.Number())
	return s.Verdict.Final() != "" && (waits || t.Awaited() || tells(t, s))
}

// tells reports whether the settlement is an end that is told.
func tells(t *config.Type, s *asyncflow.Settlement) bool {
	return (t.OnFinal != nil || s.Lease.Options.OnFinal != nil) &&
		t.Tells(&s.Lease.Options, s.Verdict.Final()) != nil
}

// awaitsSignal reports whether the task waits for a signal from the settlement on.
func awaitsSignal(s *asyncflow.Settlement) bool { return s.Verdict.Reason == asyncflow.WaitSignal }

// AddFollowUp adds what is left to do after a settlement, and reports whether there is anything.
func (r *Inserts) AddFollowUp(t *config.Type, s *asyncflow.Settlement) bool {
	r.removeVoter(t, s)
	if !NeedsFollowUp(t, s) {
		return false
	}
	r.Tables = t.Set().Tables
	id := s.Lease.ID.Number
	final := s.Verdict.Final()
	if starts(s) {
		r.addSpawn(t, s)
	}
	if parent, waits := s.Lease.Options.ParentWaits(t.Number()); waits && final != "" {
		r.addChild(FanOutKeyOf(parent), ChildEnded(final))
	}
	switch {
	case s.Verdict.Kind == asyncflow.Spawn:
		seq := int16(s.Lease.Seq + 1)
		r.fanOuts = append(r.fanOuts, fanOutRow{t.Number(), id, seq, s})
		r.Outbox = append(r.Outbox, OutboxRow{Kind: OutboxSpawn, Number: t.Number(), ID: id,
			FanOut: seq})
	case awaitsSignal(s):
		r.signalWaits = append(r.signalWaits, signalWait{t.Number(), id, *s.Outcome.Awaits})
		r.Outbox = append(r.Outbox, OutboxRow{Kind: OutboxSignal, Number: t.Number(), ID: id})
	}
	if final != "" && t.Awaited() {
		r.Outbox = append(r.Outbox, OutboxRow{Kind: OutboxEnded, Number: t.Number(), ID: id})
	}
	if tells(t, s) {
		r.Outbox = append(r.Outbox, OutboxRow{Kind: OutboxFinal, Number: t.Number(), ID: id,
			At: s.Lease.Seq})
	}
	return true
}

// addChild adds up the children of a task that end in the transaction.
func (r *Inserts) addChild(key FanOutKey, ended ChildCounts) {
	if r.children == nil {
		r.children = map[FanOutKey]int{}
	}
	i, ok := r.children[key]
	if !ok {
		i = len(r.Outbox)
		r.children[key] = i
		r.Outbox = append(r.Outbox, OutboxRow{Kind: OutboxChildren, Number: key.Number, ID: key.ID,
			FanOut: key.Seq})
	}
	r.Outbox[i].Ended.Add(ended)
}

// FanOutKey names a fan-out: its task, and the seq of that task's row in wait.
type FanOutKey struct {
	Number int32
	ID     int64
	Seq    int16
}

// FanOutKeyOf returns the fan-out of a stage that waits.
func FanOutKeyOf(a asyncflow.Awaited) FanOutKey { return FanOutKey{a.Type, a.ID, int16(a.Seq)} }

// fanOutRow is a new row of fan_outs.
type fanOutRow struct {
	number  int32
	id      int64
	seq     int16
	settled *asyncflow.Settlement
}

func queueFanOut(b *pgx.Batch, t *config.TableNames, r fanOutRow) {
	out := r.settled.Outcome.FannedOut
	var indexes []int32
	if joined := r.settled.Outcome.JoinedFanOut(); joined != nil {
		out = joined
		indexes = asyncflow.OrderByType(r.settled.Outcome.Spawn)
	}
	rule, err := json.Marshal(out.FanOut)
	if err != nil {
		panic(err) // numbers and strings
	}
	b.Queue(t.SQL(0, `INSERT INTO {fan_outs} (type, id, seq, waits, stage, rule, count, places)
		VALUES ($1, $2, $3, $3, $4, $5::text::json, $6, $7)`), r.number, r.id, r.seq,
		r.settled.Lease.Stage, string(rule), out.Count, indexes)
}

// insertOutboxSQL adds rows of outbox.
const insertOutboxSQL = `
INSERT INTO {outbox} (kind, due, type, id, fan_out, succeeded, failed, cancelled, at)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::int[], $4::bigint[], $5::smallint[],
  $6::int[], $7::int[], $8::int[], $9::int[])`

// QueueOutbox adds the insert of outbox rows to a batch.
func QueueOutbox(b *pgx.Batch, t *config.TableNames, rows []OutboxRow, now time.Time) {
	b.Queue(t.SQL(0, insertOutboxSQL),
		Column(rows, func(r *OutboxRow) string { return string(r.Kind) }),
		Column(rows, func(r *OutboxRow) time.Time {
			if r.Due.IsZero() {
				return now
			}
			return r.Due
		}),
		Column(rows, func(r *OutboxRow) int32 { return r.Number }),
		Column(rows, func(r *OutboxRow) int64 { return r.ID }),
		Column(rows, func(r *OutboxRow) int16 { return r.FanOut }),
		Column(rows, func(r *OutboxRow) int32 { return int32(r.Ended.Succeeded) }),
		Column(rows, func(r *OutboxRow) int32 { return int32(r.Ended.Failed) }),
		Column(rows, func(r *OutboxRow) int32 { return int32(r.Ended.Cancelled) }),
		Column(rows, func(r *OutboxRow) int32 { return int32(r.At) }))
}

// FanOutKey returns the key of the fan-out that the row is about.
func (r OutboxRow) FanOutKey() FanOutKey { return FanOutKey{r.Number, r.ID, r.FanOut} }
