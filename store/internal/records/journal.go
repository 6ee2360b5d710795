package records

import (
	"cmp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// journalRow is a row of a journal.
type journalRow struct {
	id       int64
	duration *float32
	next     *postgres.Moment
	err      *string
	output   []byte // nil: NULL
	endpoint string // if locations is set; otherwise the key has it
}

// journalKey has the values that rows have in common.
type journalKey struct {
	RollTables
	TypeToken
	outcome   asyncflow.OutcomeKind
	final     asyncflow.Status
	endpoint  string
	status    int16 // of the answer, or the negative of why none came
	hasTexts  bool  // they have errors or outputs
	locations bool  // each has its own, as their workers or other nodes are named
}

// newJournalRow returns the row of a settlement. An attempt is of this node unless its lease names
// another.
func newJournalRow(
	t *config.Type, s *asyncflow.Settlement, node string,
) (journalKey, journalRow) {
	l := &s.Lease
	o := &s.Outcome
	final := s.Verdict.Final()
	position := l.ID.Position()
	problem := cmp.Or(s.Verdict.Error, o.Error)
	key := journalKey{RollTables{t.SetAt(position).Tables, position},
		TypeToken{t.Number(), Token{int16(l.Seq), l.Stage, int16(l.Attempt)}}, o.Kind, final,
		s.Location(node),
		int16(o.StatusOrFailure()), problem != "" || len(o.Output) > 0,
		ownLocation(s, node)}
	row := journalRow{id: l.ID.Number, duration: postgres.OrNull(float32(o.Duration.Seconds())),
		err: postgres.OrNull(problem)}
	if final == "" {
		row.next = (*postgres.Moment)(&s.Verdict.OrderTime)
	}
	if len(o.Output) > 0 {
		row.output = o.Output
	}
	if key.locations { // so that many workers and nodes make no more statements
		row.endpoint = key.endpoint
		key.endpoint = ""
		key.hasTexts = true
	}
	return key, row
}

// ownLocation reports whether an attempt ran elsewhere than the other attempts of a node at its
// endpoint: its worker is named, or another node sent it.
func ownLocation(s *asyncflow.Settlement, node string) bool {
	l := &s.Lease
	return s.Outcome.Worker != "" || l.Worker != "" || l.Node != "" && l.Node != node
}

// queueJournal adds the insert of journal rows to a batch.
func queueJournal(b *pgx.Batch, k journalKey, rows []journalRow, now time.Time) {
	if k.locations && len(rows) > 1 {
		queueLocationsJournal(b, k, rows, now)
		return
	}
	common := []any{now, k.Seq, k.Stage, k.Attempt, string(k.outcome),
		postgres.OrNull(string(k.final)),
		postgres.OrNull(cmp.Or(k.endpoint, rows[0].endpoint)), postgres.OrNull(k.status), k.Number}
	if len(rows) == 1 {
		r := rows[0]
		b.Queue(k.Tables.SQL(k.Position, insertOneJournalSQL),
			append([]any{r.id, r.duration, r.next, r.err, r.output}, common...)...)
		return
	}
	sql, args := insertJournalSQL, append([]any{
		Column(rows, func(r *journalRow) int64 { return r.id }),
		Column(rows, func(r *journalRow) *float32 { return r.duration }),
		postgres.Moments(Column(rows, func(r *journalRow) *postgres.Moment { return r.next }))},
		common...)
	if k.hasTexts {
		sql = insertTextsJournalSQL
		args = append(args, postgres.Texts(Column(rows, func(r *journalRow) *string {
			return r.err
		})),
			Column(rows, func(r *journalRow) []byte { return r.output }))
	}
	b.Queue(k.Tables.SQL(k.Position, sql), args...)
}

// queueLocationsJournal adds the insert of rows of several workers and nodes.
func queueLocationsJournal(b *pgx.Batch, k journalKey, rows []journalRow, now time.Time) {
	b.Queue(k.Tables.SQL(k.Position, insertLocationsJournalSQL),
		Column(rows, func(r *journalRow) int64 { return r.id }),
		Column(rows, func(r *journalRow) *float32 { return r.duration }),
		postgres.Moments(Column(rows, func(r *journalRow) *postgres.Moment { return r.next })),
		now, k.Seq, k.Stage, k.Attempt, string(k.outcome), postgres.OrNull(string(k.final)),
		postgres.OrNull(k.status), k.Number,
		postgres.Texts(Column(rows, func(r *journalRow) *string { return r.err })),
		Column(rows, func(r *journalRow) []byte { return r.output }),
		postgres.Texts(Column(rows, func(r *journalRow) *string {
			return postgres.OrNull(r.endpoint)
		})))
}

// MaxSeq is the highest seq at which callers may still change or redrive a task. The numbers above
// it are left for its attempts.
const MaxSeq = 30000

// JournalFull is the error for a task with a full journal.
func JournalFull(id asyncflow.TaskID) error {
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"task %s has been changed or redriven too often: its journal has %d rows", id, MaxSeq)
}
