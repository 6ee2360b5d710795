package hot

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Rows without a key get no turn: they were inserted before the type was fair, or by a node that
// didn't know yet. Leases give them the key "". A lease looks at sweepRows rows of each source in
// order, and the next one goes on from there. While a sweep found such rows, or is the first one of
// a version of the type, each lease takes part; else one lease a second.

const (
	sweepRows  = 1000
	sweepPause = time.Second
)

// keylessSweep is how far the leases of a type looked for rows without a key.
type keylessSweep struct {
	version int
	last    time.Time            // when a lease looked
	found   bool                 // there were such rows since the sweep began
	swept   bool                 // the latest sweep is done, and found none
	at      map[fairSource]place // where sources that aren't done go on
}

// due reports whether a lease looks for rows without a key.
func (k *keylessSweep) due(version int, now time.Time) bool {
	if k.version != version {
		*k = keylessSweep{version: version}
	}
	if k.swept && now.Sub(k.last).Abs() < sweepPause {
		return false
	}
	k.last = now
	return true
}

// step notes what a lease found in the sources. ahead are the places of sources with more rows.
func (k *keylessSweep) step(found bool, ahead map[fairSource]place) {
	k.found = k.found || found
	k.swept = k.swept && !found
	k.at = ahead
	if len(ahead) == 0 {
		k.swept = !k.found
		k.found = false
	}
}

// queueKeyless gives the key "" to rows of the source without one.
func (f *fairTake) queueKeyless(b *pgx.Batch, s fairSource, from place) {
	t := f.l.t
	table, position := "{ready}", s.position
	if s.stage != "" {
		table, position = "{wait}", 0
	}
	rest := s.from(t, 0, "$2") + ` AND (order_time, id) >= ($3, $4) ORDER BY order_time, id`
	b.Queue(t.SQL(position, `
UPDATE `+table+` r SET key = '' WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM `+table+` WHERE key IS NULL AND ctid = ANY (ARRAY(
    SELECT ctid FROM `+rest+` LIMIT $5))
  FOR UPDATE SKIP LOCKED))`), t.Number(), []string{s.stage}, from.at, from.id, sweepRows).
		Exec(func(tag pgconn.CommandTag) error {
			f.moved = f.moved || tag.RowsAffected() > 0
			return nil
		})
	b.Queue(t.SQL(position, `SELECT order_time, id FROM `+rest+` OFFSET $5 LIMIT 1`), t.Number(),
		[]string{s.stage}, from.at, from.id, sweepRows).Query(func(rows pgx.Rows) error {
		next := place{}
		_, err := pgx.ForEachRow(rows, []any{&next.at, &next.id}, func() error {
			f.ahead[s] = next
			return nil
		})
		return err
	})
}
