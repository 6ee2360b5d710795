package tasks

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// erasedDocument stands in place of a context: the column takes no NULL.
const erasedDocument = "null"

// write overwrites the contents of tasks of one roll.
func (e *erasure) write(t *config.Type, position int, all []erasable) error {
	options := make([]string, len(all))
	keys := make([]string, len(all))
	kept := []int64{} // entries of what stays
	for i := range all {
		text, err := json.Marshal(all[i].options.Erase(e.by))
		if err != nil {
			return err
		}
		options[i] = string(text)
		keys[i] = all[i].options.Key
		if key := all[i].options.FlowKey; key != "" {
			kept = append(kept, records.SearchEntry(asyncflow.SearchFlowKey, key))
		}
	}
	ids := idsOf(all)
	searchable, err := config.HasSearch(e.ctx, e.tx, t.SetAt(position).Tables, position)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	if searchable { // before the options, which say what they are found by
		b.Queue(t.SQL(position, records.DeleteSearchSQL+records.OfTasksSQL+`
			AND e <> ALL ($3::bigint[])))`), t.Number(), ids, kept)
	}
	b.Queue(t.SQL(position, EraseTasksSQL), t.Number(), ids, options, erasedDocument)
	b.Queue(t.SQL(position, EraseJournalSQL), t.Number(), ids)
	b.Queue(t.SQL(0, records.DeleteCheckpointsSQL), t.Number(), ids)
	b.Queue(t.SQL(0, `DELETE FROM {signals} WHERE type = $1 AND task = ANY ($2)`), t.Number(), ids)
	b.Queue(t.SQL(0, EraseSpawnsSQL), t.Number(), ids)
	b.Queue(t.SQL(0, EraseKeysSQL), t.Name, keys, ids)
	queueEraseLateVotes(b, t, all)
	if err := e.tx.SendBatch(e.ctx, b).Close(); err != nil {
		return err
	}
	return t.SetAt(position).Tables.VacuumSoon(e.ctx, e.tx, position, searchable)
}

// These statements are written like records.TakeAnyWaitSQL.
const (
	EraseTasksSQL = `
UPDATE {task} t SET context = $4, options = u.options::json
FROM (SELECT $1::int AS type, u.* FROM unnest($2::bigint[], $3::text[]) AS u (id, options)
  OFFSET 0) u
WHERE t.type = ANY (ARRAY[u.type]) AND t.id BETWEEN u.id AND u.id`
	EraseJournalSQL = `
UPDATE {journal} j SET error = NULL, output = NULL, options = NULL
FROM (SELECT $1::int AS type, id FROM unnest($2::bigint[]) AS id OFFSET 0) u
WHERE j.type = ANY (ARRAY[u.type]) AND j.id BETWEEN u.id AND u.id
  AND (j.error IS NOT NULL OR j.output IS NOT NULL OR j.options IS NOT NULL)`
	EraseSpawnsSQL = `
UPDATE {spawns} s SET hash = ''
FROM (SELECT $1::int AS type, id FROM unnest($2::bigint[]) AS id OFFSET 0) u
WHERE s.type = ANY (ARRAY[u.type]) AND s.id BETWEEN u.id AND u.id`
	EraseKeysSQL = `
UPDATE {keys} k SET hash = ''
FROM (SELECT $1::text AS type, u.* FROM unnest($2::text[], $3::bigint[]) AS u (key, id)
  OFFSET 0) u
WHERE k.type = ANY (ARRAY[u.type]) AND k.key BETWEEN u.key AND u.key AND k.id = u.id`
	EraseLateVotesSQL = `
DELETE FROM {votes} v USING (
  SELECT $1::int AS type, k.key FROM (
    SELECT unnest($3::text[]) AS key
    UNION
    SELECT f.id || '.' || f.seq FROM unnest($2::bigint[]) AS i (id), LATERAL (
      SELECT id, seq FROM {fan_outs} WHERE type = $1 AND id BETWEEN i.id AND i.id
      ORDER BY id, seq) f) k
  OFFSET 0) u
WHERE v.type = ANY (ARRAY[u.type]) AND v.key BETWEEN u.key AND u.key AND v.late IS NOT NULL`
)

// queueEraseLateVotes deletes the votes that came late on the tasks, or on what they were votes on:
// no row says which vote was claimed. A late vote locks the rows of both tasks, and so it comes
// before the batch, which deletes it, or finds them erased.
func queueEraseLateVotes(b *pgx.Batch, t *config.Type, all []erasable) {
	keys := []string{}
	for i := range all {
		if key := all[i].options.Child.VoteKey(); key != "" {
			keys = append(keys, key)
		}
	}
	b.Queue(t.SQL(0, EraseLateVotesSQL), t.Number(), idsOf(all), keys)
}
