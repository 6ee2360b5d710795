package hot

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// queuePayloads reads options and contexts from the rolls in the ids; for later attempts also from
// the journal.
func queuePayloads(
	b *pgx.Batch, t *config.Type, leases []asyncflow.Lease, byID map[int64]*asyncflow.Lease,
) {
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
