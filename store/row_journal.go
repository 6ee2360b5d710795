package store

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// journalRow is a row of a journal.
type journalRow struct {
	journalKey
	id       int64
	duration *float32
	next     *moment
	err      *string
	output   []byte // nil: NULL
}

// journalKey has the values that the rows of a batch mostly have in common.
type journalKey struct {
	typed
	outcome  asyncflow.OutcomeKind
	final    asyncflow.Status
	endpoint string
	status   int16
}

// newJournalRow returns the row of a settlement.
func newJournalRow(t *Type, s *asyncflow.Settlement) journalRow {
	l, o, final := &s.Lease, &s.Outcome, s.Verdict.Final()
	row := journalRow{
		journalKey: journalKey{typed{t.number, spot{int16(l.Seq), l.Stage, int16(l.Attempt)}}, o.Kind,
			final, o.Endpoint, int16(o.Status)},
		id:       l.ID.Number,
		duration: orNull(float32(o.Duration.Seconds())),
		err:      orNull(o.Error),
	}
	if final == "" {
		row.next = (*moment)(&s.Verdict.OrderTime)
	}
	if len(o.Output) > 0 {
		row.output = o.Output
	}
	return row
}

// told reports whether the row has an error or an output.
func (r *journalRow) told() bool { return r.err != nil || r.output != nil }

// queueJournal adds the insert of journal rows of one roll to a batch.
func queueJournal(b *pgx.Batch, at rolled, rows []journalRow, now time.Time) {
	ids := column(rows, func(r *journalRow) int64 { return r.id })
	durations := column(rows, func(r *journalRow) *float32 { return r.duration })
	nexts := moments(column(rows, func(r *journalRow) *moment { return r.next }))
	told := !same(rows, (*journalRow).told) || rows[0].told()
	var errors texts
	var outputs any
	if told {
		errors = texts(column(rows, func(r *journalRow) *string { return r.err }))
		outputs = column(rows, func(r *journalRow) []byte { return r.output })
	}
	if !same(rows, func(r *journalRow) journalKey { return r.journalKey }) {
		if !told {
			errors = make(texts, len(rows))
			outputs = column(rows, func(r *journalRow) []byte { return nil })
		}
		b.Queue(at.tables.at(at.position, insertMixedJournalSQL), ids, durations, nexts, errors, outputs,
			column(rows, func(r *journalRow) int32 { return r.number }),
			column(rows, func(r *journalRow) int16 { return r.seq }),
			column(rows, func(r *journalRow) string { return r.stage }),
			column(rows, func(r *journalRow) int16 { return r.attempt }),
			column(rows, func(r *journalRow) string { return string(r.outcome) }),
			column(rows, func(r *journalRow) *string { return orNull(string(r.final)) }),
			column(rows, func(r *journalRow) *string { return orNull(r.endpoint) }),
			column(rows, func(r *journalRow) *int16 { return orNull(r.status) }), now)
		return
	}
	k := rows[0].journalKey
	sql, args := insertJournalSQL, []any{ids, durations, nexts, now, k.seq, k.stage, k.attempt,
		string(k.outcome), orNull(string(k.final)), orNull(k.endpoint), orNull(k.status), k.number}
	if told {
		sql, args = insertToldJournalSQL, append(args, errors, outputs)
	}
	b.Queue(at.tables.at(at.position, sql), args...)
}

// maxSeq is the highest seq at which callers may still change or redrive a task. The numbers above
// it are left for its attempts.
const maxSeq = 30000

func journalFull(id asyncflow.TaskID) error {
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"task %s has been changed or redriven too often: its journal has %d rows", id, maxSeq)
}
