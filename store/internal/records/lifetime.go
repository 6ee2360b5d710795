package records

import (
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// LifetimeRow says when a live task expires unless something happens before.
type LifetimeRow struct {
	Number int32 // of the type
	ID     int64
	At     time.Time // zero: it doesn't
	// Start is the last row of its journal if At is about its start; nil: it is about its end.
	Start *int16
	// enters is the time after now at which it expires, if it is about the start of a stage.
	enters time.Duration
}

// NewLifetime returns when a task expires whose journal has some rows.
func NewLifetime(t *config.Type, id int64, e asyncflow.Expiry, rows int) LifetimeRow {
	r := LifetimeRow{Number: t.Number(), ID: id, At: e.At}
	if e.Start {
		start := int16(rows)
		r.Start = &start
	}
	return r
}

// addLifetime adds what a settlement changes about when its task expires. Types and tasks without
// lifetimes have nothing to change.
func (r *Inserts) addLifetime(t *config.Type, s *asyncflow.Settlement) {
	l := &s.Lease
	if l.Options.Lifetime == nil && !t.TimesStarts() || !t.HasLifetime(&l.Options) {
		return
	}
	row := NewLifetime(t, l.ID.Number, l.Options.Lifetime.End(), l.Seq)
	began := s.Outcome.Kind.BeganBy()
	switch v := s.Verdict; {
	case v.Final() != "":
		row.At = time.Time{}
	case v.Kind == asyncflow.Advance:
		e := t.Expiry(&l.Options, v.Stage, v.OrderTime, false)
		row = NewLifetime(t, l.ID.Number, e, l.Seq)
		if e.Start { // it counts from the settlement, whatever the head start
			row.enters = e.At.Sub(v.OrderTime)
		}
		if !e.Start && l.Attempt > 1 {
			return // the first attempt has left the same row
		}
	case !began || l.Attempt > 1:
		return
	}
	r.lifetimes = append(r.lifetimes, row)
}

// QueueLifetimes adds rows of lifetimes to a batch, and deletes the rows of tasks that don't
// expire. It writes them in the order of their ids, so that no two batches deadlock.
func QueueLifetimes(b *pgx.Batch, t *config.TableNames, rows []LifetimeRow, now time.Time) {
	slices.SortFunc(rows, func(a, b LifetimeRow) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.ID, b.ID))
	})
	var live, over []LifetimeRow
	for _, r := range rows {
		if r.enters > 0 {
			r.At = now.Add(r.enters)
		}
		if r.At.IsZero() {
			over = append(over, r)
		} else {
			live = append(live, r)
		}
	}
	number := func(r *LifetimeRow) int32 { return r.Number }
	id := func(r *LifetimeRow) int64 { return r.ID }
	if len(live) > 0 {
		b.Queue(t.SQL(0, insertLifetimesSQL), Column(live, number), Column(live, id),
			postgres.Moments(Column(live,
				func(r *LifetimeRow) *postgres.Moment { return (*postgres.Moment)(&r.At) })),
			Column(live, func(r *LifetimeRow) *int16 { return r.Start }))
	}
	soon := now.Add(reportedAfter)
	if slices.ContainsFunc(live, func(r LifetimeRow) bool { return r.At.Before(soon) }) {
		b.Queue(reportSQL)
	}
	if len(over) > 0 {
		QueueTake(b, func(pgx.Rows) error { return nil }, t.SQL(0, DeleteLifetimesSQL),
			Column(over, number), Column(over, id))
	}
}

const (
	insertLifetimesSQL = `
INSERT INTO {lifetimes} (type, id, expires_at, start)
SELECT * FROM unnest($1::int[], $2::bigint[], $3::timestamptz[], $4::smallint[])
ON CONFLICT (type, id) DO UPDATE SET expires_at = excluded.expires_at, start = excluded.start`
	// DeleteLifetimesSQL has the form of TakeAnyWaitSQL.
	DeleteLifetimesSQL = `
DELETE FROM {lifetimes} WHERE ctid = ANY (ARRAY(
  SELECT k.t FROM unnest($1::int[], $2::bigint[]) AS u (type, id), LATERAL (
    SELECT ctid AS t FROM {lifetimes} WHERE type = u.type AND id BETWEEN u.id AND u.id
    ORDER BY id LIMIT 1 FOR UPDATE) k))`
)

// The job expire hears of new rows by the counts of Postgres, which a connection reports up to
// reportedAfter later. Rows that are due before that are reported with their commit.
const (
	reportedAfter = 15 * time.Second
	reportSQL     = `SELECT pg_stat_force_next_flush()`
)

// QueueExpiry changes when a waiting or pending task expires. It counts from the same row of the
// journal as before; otherwise from the last redrive.
func QueueExpiry(b *pgx.Batch, t *config.Type, id asyncflow.TaskID, e asyncflow.Expiry) {
	if e.At.IsZero() {
		b.Queue(t.SQL(0, `DELETE FROM {lifetimes} WHERE type = $1 AND id = $2`), t.Number(),
			id.Number)
		return
	}
	b.Queue(t.SQL(id.Position(), `
		INSERT INTO {lifetimes} AS l (type, id, expires_at, start)
		SELECT $1, $2, $3, CASE WHEN $4 THEN coalesce((
		  SELECT max(seq) FROM {journal} WHERE type = $1 AND id = $2 AND final IS NOT NULL),
		  0::smallint) END
		ON CONFLICT (type, id) DO UPDATE SET expires_at = excluded.expires_at,
		  start = CASE WHEN $4 THEN coalesce(l.start, excluded.start) END`), t.Number(), id.Number,
		e.At, e.Start)
	b.Queue(reportSQL)
}
