package hot

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// QueuePayloads reads options and contexts from the rolls in the ids; for later attempts also from
// the journal.
func QueuePayloads(
	s *Path, b *pgx.Batch, t *config.Type, leases []asyncflow.Lease,
	byID map[int64]*asyncflow.Lease,
) {
	for p, ids := range payloadParts(leases) {
		if p.long {
			s.queueLongPayloads(b, t, p.position, ids, byID, longPayloadsSQL)
			continue
		}
		b.Queue(t.SQL(p.position, p.sql()), ids, t.Number()).Query(scanPayloads(t, byID))
	}
}

// QueueBoundedPayloads is QueuePayloads, but a statement reads no more contexts once they take some
// bytes: there is one for each roll, and another for long journals.
func QueueBoundedPayloads(
	s *Path, b *pgx.Batch, t *config.Type, leases []asyncflow.Lease,
	byID map[int64]*asyncflow.Lease, bytes int,
) {
	for p, ids := range payloadParts(leases) {
		if p.long {
			s.queueLongPayloads(b, t, p.position, ids, byID, boundedLongPayloadsSQL, bytes)
			continue
		}
		b.Queue(t.SQL(p.position, boundedSQL(p.wideSQL(), "$3", "")), ids, t.Number(), bytes).
			Query(scanPayloads(t, byID))
	}
}

// boundedSQL is a statement that reads payloads until they take some bytes. It also returns other
// columns.
func boundedSQL(sql, bytes, others string) string {
	return strings.NewReplacer("{sql}", sql, "{bytes}", bytes, "{others}", others).Replace(`
SELECT id, options, CASE WHEN upto - size < {bytes} THEN context END, created_at, stage,
  CASE WHEN upto - size < {bytes} THEN document END{others} FROM (
  SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS upto FROM (
  SELECT *, octet_length(context) + coalesce(octet_length(document), 0) AS size
  FROM ({sql}) p) q) r`)
}

// payloadPart are payloads that one statement reads.
type payloadPart struct {
	position int
	later    bool // of attempts after the first
	long     bool // of tasks with long journals
}

// sql returns the statement that reads them.
func (p payloadPart) sql() string {
	if p.later {
		return records.LaterPayloadsSQL
	}
	return records.PayloadsSQL
}

// wideSQL is sql with the columns of checkpoints also for first attempts, which come without.
func (p payloadPart) wideSQL() string {
	if p.later {
		return p.sql()
	}
	return `SELECT p.*, NULL::text AS stage, NULL::text AS document
		FROM (` + p.sql() + `) p (id, options, context, created_at)`
}

// payloadParts divides leases by the statements that read their payloads.
func payloadParts(leases []asyncflow.Lease) map[payloadPart][]int64 {
	parts := map[payloadPart][]int64{}
	for _, l := range leases {
		p := payloadPart{l.ID.Position(), l.Seq > 1, l.Seq > longJournal}
		parts[p] = append(parts[p], l.ID.Number)
	}
	return parts
}

// scanPayloads reads tasks' payloads into their leases.
func scanPayloads(
	t *config.Type, byID map[int64]*asyncflow.Lease,
) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scanPayload(rows, t, byID); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// scanPayload reads a task's payload into its lease.
func scanPayload(rows pgx.Rows, t *config.Type, byID map[int64]*asyncflow.Lease) error {
	raw := rows.RawValues() // in text; copied once, below
	var id int64
	var created time.Time
	into := [6]any{&id, nil, nil, &created}
	if err := rows.Scan(into[:len(raw)]...); err != nil {
		return err
	}
	l := byID[id]
	l.CreatedAt = created
	l.Context = append(json.RawMessage(nil), raw[2]...)
	if len(raw) > 4 && raw[4] != nil {
		if stage, _ := t.Mapped(string(raw[4]), 1); stage == l.Stage {
			l.Checkpoint = append(json.RawMessage(nil), raw[5]...)
		}
	}
	if raw[1] == nil {
		return nil
	}
	return json.Unmarshal(raw[1], &l.Options)
}

// longPayloadsSQL is LaterPayloadsSQL for long journals. It also returns their last rows, and the
// rows with options and context.
var longPayloadsSQL = `
SELECT t.id, coalesce(p.options, t.options) AS options, coalesce(o.output, t.context) AS context,
  t.created_at, c.stage, c.document, coalesce(top.seq, 0) AS until,
  coalesce(top.at, t.created_at) AS at,
  coalesce(p.seq, 0) AS options_row, coalesce(o.seq, 0) AS context_row
FROM unnest($1::bigint[], $3::smallint[], $4::timestamptz[], $5::smallint[],
  $6::smallint[], $7::timestamptz[], $8::smallint[])
  AS u (id, p_until, p_at, p_row, o_until, o_at, o_row), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t
  LEFT JOIN ` + topSQL + ` top ON true, ` +
	LatestSQL("options", "j.options IS NOT NULL", "p") + ` p ON true, ` +
	LatestSQL("output", "j.output IS NOT NULL", "o") + ` o ON true` + records.CheckpointJoin

// boundedLongPayloadsSQL is longPayloadsSQL until the payloads take some bytes.
var boundedLongPayloadsSQL = boundedSQL(longPayloadsSQL, "$9",
	", until, at, options_row, context_row")

// queueLongPayloads reads payloads of tasks with long journals, of one roll, by longPayloadsSQL or
// a statement made of it with more arguments.
func (s *Path) queueLongPayloads(
	b *pgx.Batch, t *config.Type, position int, ids []int64, byID map[int64]*asyncflow.Lease,
	sql string, more ...any,
) {
	var options, contexts []latestKey
	for _, id := range ids {
		options = append(options, latestKey{t.Key(), id, optionsKind})
		contexts = append(contexts, latestKey{t.Key(), id, contextKind})
	}
	args := slices.Concat([]any{ids, t.Number()}, s.latest.args(options),
		s.latest.args(contexts), more)
	b.Queue(t.SQL(position, sql), args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := s.scanLongPayload(rows, t, byID); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// scanLongPayload reads a row of longPayloadsSQL.
func (s *Path) scanLongPayload(
	rows pgx.Rows, t *config.Type, byID map[int64]*asyncflow.Lease,
) error {
	var id int64
	var options, document []byte
	var context json.RawMessage
	var stage *string
	var until, optionsRow, contextRow int16
	var at, created time.Time
	err := rows.Scan(&id, &options, (*[]byte)(&context), &created, &stage, &document, &until, &at,
		&optionsRow, &contextRow)
	if err != nil {
		return err
	}
	s.latest.note(latestKey{t.Key(), id, optionsKind}, latest{until, at, optionsRow})
	s.latest.note(latestKey{t.Key(), id, contextKind}, latest{until, at, contextRow})
	l := byID[id]
	l.Context = context
	l.CreatedAt = created
	if stage != nil {
		if name, _ := t.Mapped(*stage, 1); name == l.Stage {
			l.Checkpoint = document
		}
	}
	if options == nil {
		return nil
	}
	return json.Unmarshal(options, &l.Options)
}
