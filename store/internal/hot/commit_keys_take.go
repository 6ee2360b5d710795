package hot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// TakeKeysSQL gives keys to other tasks. Their rows are locked. The ORDER BY and the LIMIT leave
// the planner one plan: a walk down the index for each key. Otherwise it reads all keys of the
// type.
const TakeKeysSQL = `
UPDATE {keys} k SET id = u.id, hash = u.hash, expires_at = u.expires_at
FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::timestamptz[])
  AS u (key, id, hash, expires_at), LATERAL (
  SELECT ctid FROM {keys} WHERE type = $1 AND key BETWEEN u.key AND u.key
  ORDER BY key LIMIT 1) l
WHERE k.ctid = l.ctid`

// finalSQL returns which tasks of a roll are final. A redrive writes a row that is not.
const finalSQL = `
SELECT u.id FROM unnest($2::bigint[]) AS u (id) CROSS JOIN LATERAL (
  SELECT final FROM {journal} j WHERE j.type = $1 AND j.id = u.id ORDER BY j.seq DESC LIMIT 1) j
WHERE j.final IS NOT NULL`

// takeKeys gives keys that belong to other tasks to new ones: to the first item that takes a key
// from its task, or else to the first item with a key that stood for a task until that was final.
// It changes the holders. The statements that read them locked the rows.
func takeKeys(
	ctx context.Context, tx pgx.Tx, t *config.Type, items []*Insertion,
	holders map[string]Holder, others map[string]bool,
) error {
	takers := map[string]*Insertion{}
	ending := map[string]*Insertion{}
	var ids []int64
	for _, item := range items {
		name := item.Key.Name
		h, known := holders[name]
		_, put := others[name]
		switch {
		case !known || put || h.ID == item.ID.Number || item.Key.onlyReplaces() != nil:
		case item.Key.Takes == h.ID && takers[name] == nil:
			takers[name] = item
		case h.Expires.Equal(config.KeyUntilFinal) && ending[name] == nil:
			ending[name] = item
			ids = append(ids, h.ID)
		}
	}
	final, err := finalOf(ctx, tx, t, ids)
	if err != nil {
		return err
	}
	for name, item := range ending {
		if final[holders[name].ID] && takers[name] == nil {
			takers[name] = item
		}
	}
	var given []givenKey
	for name, item := range takers {
		given = append(given, givenKey{name,
			Holder{item.ID.Number, item.Key.Hash[:], item.Key.Expires}})
	}
	return giveKeys(ctx, tx, t, given, holders)
}

// givenKey is a key with the task for which it stands from now on.
type givenKey struct {
	name   string
	holder Holder
}

// giveKeys writes for which tasks keys stand, and changes the holders.
func giveKeys(
	ctx context.Context, tx pgx.Tx, t *config.Type, given []givenKey, holders map[string]Holder,
) error {
	if len(given) == 0 {
		return nil
	}
	var names []string
	var ids []int64
	var hashes [][]byte
	var expires []time.Time
	for _, g := range given {
		names = append(names, g.name)
		ids = append(ids, g.holder.ID)
		hashes = append(hashes, g.holder.Hash)
		expires = append(expires, g.holder.Expires)
		holders[g.name] = g.holder
	}
	_, err := tx.Exec(ctx, t.SQL(0, TakeKeysSQL), t.Name, names, ids, hashes, expires)
	return err
}

// finalOf returns which of some tasks of a type are final, or were dropped with their roll.
func finalOf(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64,
) (final map[int64]bool, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if t, err = config.RollsNow(ctx, tx, t); err != nil {
		return nil, err
	}
	final = map[int64]bool{}
	for position, ids := range config.ByPosition(ids) {
		if !t.Has(position) {
			for _, id := range ids {
				final[id] = true
			}
			continue
		}
		rows, err := tx.Query(ctx, t.SQL(position, finalSQL), t.Number(), ids)
		if err != nil {
			return nil, err
		}
		if err := CollectIDs(rows, final); err != nil {
			return nil, err
		}
	}
	return final, nil
}
