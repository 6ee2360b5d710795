package store

import (
	"cmp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// journalRow is a row of a journal.
type journalRow struct {
	id       int64
	duration *float32
	next     *moment
	err      *string
	output   []byte // nil: NULL
}

// journalKey has the values that rows have in common.
type journalKey struct {
	rolled
	typed
	outcome  asyncflow.OutcomeKind
	final    asyncflow.Status
	endpoint string
	status   int16
	told     bool // they have errors or outputs
}

// newJournalRow returns the row of a settlement.
func newJournalRow(t *Type, s *asyncflow.Settlement) (journalKey, journalRow) {
	l, o, final := &s.Lease, &s.Outcome, s.Verdict.Final()
	position := l.ID.Position()
	problem := cmp.Or(s.Verdict.Error, o.Error)
	key := journalKey{rolled{t.setAt(position).tables, position},
		typed{t.number, spot{int16(l.Seq), l.Stage, int16(l.Attempt)}}, o.Kind, final, o.Endpoint,
		int16(o.Status), problem != "" || len(o.Output) > 0}
	row := journalRow{id: l.ID.Number, duration: orNull(float32(o.Duration.Seconds())),
		err: orNull(problem)}
	if final == "" {
		row.next = (*moment)(&s.Verdict.OrderTime)
	}
	if len(o.Output) > 0 {
		row.output = o.Output
	}
	return key, row
}

// queueJournal adds the insert of journal rows to a batch.
func queueJournal(b *pgx.Batch, k journalKey, rows []journalRow, now time.Time) {
	common := []any{now, k.seq, k.stage, k.attempt, string(k.outcome), orNull(string(k.final)),
		orNull(k.endpoint), orNull(k.status), k.number}
	if len(rows) == 1 {
		r := rows[0]
		b.Queue(k.tables.at(k.position, insertOneJournalSQL),
			append([]any{r.id, r.duration, r.next, r.err, r.output}, common...)...)
		return
	}
	sql, args := insertJournalSQL, append([]any{
		column(rows, func(r *journalRow) int64 { return r.id }),
		column(rows, func(r *journalRow) *float32 { return r.duration }),
		moments(column(rows, func(r *journalRow) *moment { return r.next }))}, common...)
	if k.told {
		sql = insertToldJournalSQL
		args = append(args, texts(column(rows, func(r *journalRow) *string { return r.err })),
			column(rows, func(r *journalRow) []byte { return r.output }))
	}
	b.Queue(k.tables.at(k.position, sql), args...)
}

// maxSeq is the highest seq at which callers may still change or redrive a task. The numbers above
// it are left for its attempts.
const maxSeq = 30000

func journalFull(id asyncflow.TaskID) error {
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"task %s has been changed or redriven too often: its journal has %d rows", id, maxSeq)
}
