package store

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
)

// journal collects journal rows by the roll of their tasks and by their common values.
type journal struct {
	all groups[journalKey, journalRows]
}

type journalKey struct {
	position int
	spot
	outcome  asyncflow.OutcomeKind
	final    asyncflow.Status
	endpoint string
	status   int16
	told     bool // there may be rows with errors and outputs
}

// journalRows has the other values, as columns.
type journalRows struct {
	ids       []int64
	durations pgtype.FlatArray[*float32]
	nexts     moments
	errors    texts
	outputs   pgtype.FlatArray[[]byte] // NULL for nil
}

// add adds the row of a settlement.
func (j *journal) add(s *asyncflow.Settlement) {
	l, o, final := &s.Lease, &s.Outcome, s.Verdict.Final()
	key := journalKey{l.ID.Position(), spot{int16(l.Seq), l.Stage, int16(l.Attempt)}, o.Kind, final,
		o.Endpoint, int16(o.Status),
		o.Error != "" || len(o.Output) > 0}
	r := j.all.of(key)
	r.ids = append(r.ids, l.ID.Number)
	r.durations = append(r.durations, orNull(float32(o.Duration.Seconds())))
	if final == "" {
		r.nexts = append(r.nexts, (*moment)(&s.Verdict.OrderTime))
	} else {
		r.nexts = append(r.nexts, nil)
	}
	if key.told {
		r.errors = append(r.errors, orNull(o.Error))
		output := []byte(o.Output)
		if len(output) == 0 {
			output = nil
		}
		r.outputs = append(r.outputs, output)
	}
}

// queue adds the inserts to a batch.
func (j *journal) queue(b *pgx.Batch, t *Type, now time.Time) {
	for i, k := range j.all.keys {
		r := j.all.rows[i]
		sql, args := insertJournalSQL,
			[]any{r.ids, r.durations, r.nexts, now, k.seq, k.stage, k.attempt, string(k.outcome),
				orNull(string(k.final)), orNull(k.endpoint), orNull(k.status)}
		if k.told {
			sql, args = insertToldJournalSQL, append(args, r.errors, r.outputs)
		}
		b.Queue(t.tables.at(k.position, sql), args...)
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

// maxSeq is the highest seq at which callers may still change or redrive a task. The numbers above
// it are left for its attempts.
const maxSeq = 30000

func journalFull(id asyncflow.TaskID) error {
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"task %s has been changed or redriven too often: its journal has %d rows", id, maxSeq)
}
