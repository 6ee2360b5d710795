package hot

import (
	"encoding/json"
	"slices"
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
	var long []int64
	if slices.ContainsFunc(leases, hasLongJournal) {
		leases = slices.Clone(leases)
		leases = slices.DeleteFunc(leases, func(l asyncflow.Lease) bool {
			if hasLongJournal(l) {
				long = append(long, l.ID.Number)
			}
			return hasLongJournal(l)
		})
		s.queueLongPayloads(b, t, long, byID)
	}
	for p, ids := range PayloadParts(leases) {
		b.Queue(t.SQL(p.Position, p.SQL()), ids, t.Number()).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := ScanPayload(rows, t, byID); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
}

// payloadPart are payloads that one statement reads.
type payloadPart struct {
	Position int
	later    bool // of attempts after the first
}

// SQL returns the statement that reads them.
func (p payloadPart) SQL() string {
	if p.later {
		return records.LaterPayloadsSQL
	}
	return records.PayloadsSQL
}

// WideSQL is SQL with the columns of checkpoints also for first attempts, which have none.
func (p payloadPart) WideSQL() string {
	if p.later {
		return p.SQL()
	}
	return `SELECT p.*, NULL::text AS stage, NULL::text AS document
		FROM (` + p.SQL() + `) p (id, options, context)`
}

// PayloadParts divides leases by the tables that have their payloads.
func PayloadParts(leases []asyncflow.Lease) map[payloadPart][]int64 {
	parts := map[payloadPart][]int64{}
	for _, l := range leases {
		p := payloadPart{l.ID.Position(), l.Seq > 1}
		parts[p] = append(parts[p], l.ID.Number)
	}
	return parts
}

// ScanPayload reads a task's payload into its lease.
func ScanPayload(rows pgx.Rows, t *config.Type, byID map[int64]*asyncflow.Lease) error {
	raw := rows.RawValues() // in text; copied once, below
	var id int64
	into := [5]any{&id}
	if err := rows.Scan(into[:len(raw)]...); err != nil {
		return err
	}
	l := byID[id]
	l.Context = append(json.RawMessage(nil), raw[2]...)
	if len(raw) > 3 && raw[3] != nil {
		if stage, _ := t.Place(string(raw[3]), 1); stage == l.Stage {
			l.Checkpoint = append(json.RawMessage(nil), raw[4]...)
		}
	}
	if raw[1] == nil {
		return nil
	}
	return json.Unmarshal(raw[1], &l.Options)
}

// longPayloadsSQL is LaterPayloadsSQL for long journals. It also returns their last rows, and the
// rows that have options and context.
var longPayloadsSQL = `
SELECT t.id, coalesce(p.options, t.options), coalesce(o.output, t.context), c.stage, c.document,
  coalesce(top.seq, 0), coalesce(top.at, t.created_at), coalesce(p.seq, 0), coalesce(o.seq, 0)
FROM unnest($1::bigint[], $3::smallint[], $4::timestamptz[], $5::smallint[],
  $6::smallint[], $7::timestamptz[], $8::smallint[])
  AS u (id, p_until, p_at, p_row, o_until, o_at, o_row), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t
  LEFT JOIN ` + topSQL + ` top ON true, ` +
	latestSQL("options", "j.options IS NOT NULL", "p") + ` p ON true, ` +
	latestSQL("output", "j.output IS NOT NULL", "o") + ` o ON true` + records.CheckpointJoin

// hasLongJournal reports whether the task of a lease has a long journal.
func hasLongJournal(l asyncflow.Lease) bool { return l.Seq > longJournal }

// queueLongPayloads is queuePayloads for tasks with long journals.
func (s *Path) queueLongPayloads(
	b *pgx.Batch, t *config.Type, ids []int64, byID map[int64]*asyncflow.Lease,
) {
	for position, ids := range config.ByPosition(ids) {
		var options, contexts []latestKey
		for _, id := range ids {
			options = append(options, latestKey{t.Key(), id, optionsKind})
			contexts = append(contexts, latestKey{t.Key(), id, contextKind})
		}
		args := slices.Concat([]any{ids, t.Number()}, s.latest.args(options),
			s.latest.args(contexts))
		b.Queue(t.SQL(position, longPayloadsSQL), args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := s.scanLongPayload(rows, t, byID); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
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
	var at time.Time
	err := rows.Scan(&id, &options, (*[]byte)(&context), &stage, &document, &until, &at,
		&optionsRow, &contextRow)
	if err != nil {
		return err
	}
	s.latest.note(latestKey{t.Key(), id, optionsKind}, latest{until, at, optionsRow})
	s.latest.note(latestKey{t.Key(), id, contextKind}, latest{until, at, contextRow})
	l := byID[id]
	l.Context = context
	if stage != nil {
		if name, _ := t.Place(*stage, 1); name == l.Stage {
			l.Checkpoint = document
		}
	}
	if options == nil {
		return nil
	}
	return json.Unmarshal(options, &l.Options)
}
