package store

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// journal collects journal rows by the roll that their tasks live in.
type journal map[int]*journalRows

// journalRows are rows of one journal table, as columns.
type journalRows struct {
	ids       []int64
	seqs      []int16
	stages    []string
	attempts  []int16
	outcomes  []string
	finals    []*string
	endpoints []*string
	durations []*float32
	statuses  []*int16
	errors    []*string
	outputs   []*string
	nexts     []*time.Time
}

func newJournal() journal { return journal{} }

// add adds the row of a settlement.
func (j journal) add(s *asyncflow.Settlement) {
	r := j[s.Lease.ID.Position()]
	if r == nil {
		r = &journalRows{}
		j[s.Lease.ID.Position()] = r
	}
	o := &s.Outcome
	r.ids = append(r.ids, s.Lease.ID.Number)
	r.seqs = append(r.seqs, int16(s.Lease.Seq))
	r.stages = append(r.stages, s.Lease.Stage)
	r.attempts = append(r.attempts, int16(s.Lease.Attempt))
	r.outcomes = append(r.outcomes, string(o.Kind))
	r.finals = append(r.finals, orNull(string(s.Verdict.Final())))
	r.endpoints = append(r.endpoints, orNull(o.Endpoint))
	r.durations = append(r.durations, orNull(float32(o.Duration.Seconds())))
	r.statuses = append(r.statuses, orNull(int16(o.Status)))
	r.errors = append(r.errors, orNull(o.Error))
	r.outputs = append(r.outputs, orNull(string(o.Output)))
	if s.Verdict.Final() == "" {
		r.nexts = append(r.nexts, &s.Verdict.OrderTime)
	} else {
		r.nexts = append(r.nexts, nil)
	}
}

// queue adds the inserts to a batch.
func (j journal) queue(b *pgx.Batch, t *Type, now time.Time) {
	for position, r := range j {
		b.Queue(t.tables.at(position, insertJournalSQL), now, r.ids, r.seqs, r.stages, r.attempts, r.outcomes,
			r.finals, r.endpoints, r.durations, r.statuses, r.errors, r.outputs, r.nexts)
	}
}

// orNull returns a pointer to v, or nil for the zero value.
func orNull[V comparable](v V) *V {
	var zero V
	if v == zero {
		return nil
	}
	return &v
}

// maxSeq is the highest seq at which callers may still change a task or set it going
// again: the numbers above it are left for its attempts.
const maxSeq = 30000

func journalFull(id asyncflow.TaskID) error {
	return asyncflow.Errorf(asyncflow.CodeConflict, "task %s has been changed or redriven too often: its journal has %d rows", id, maxSeq)
}
