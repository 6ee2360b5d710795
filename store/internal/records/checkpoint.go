package records

import "time"

// FirstCheck is how long after its first write it is looked whether a checkpoint still counts.
const FirstCheck = 10 * time.Minute

// WriteCheckpointsSQL returns a statement that updates leases, and writes the checkpoints of the
// updated ones. update is an UPDATE that returns the columns type, id, seq, stage, at and document;
// check is the parameter of the first check. A write may be late: the checkpoint of an attempt that
// arrived last stays.
func WriteCheckpointsSQL(update, check string) string {
	return `
WITH updated AS (` + update + `)
INSERT INTO {checkpoints} AS c (type, id, seq, stage, written_at, check_at, document)
SELECT type, id, seq, stage, at, ` + check + `, document FROM updated
ON CONFLICT (type, id) DO UPDATE SET seq = excluded.seq, stage = excluded.stage,
  written_at = CASE WHEN c.seq = excluded.seq THEN greatest(c.written_at, excluded.written_at)
    ELSE excluded.written_at END,
  document = CASE WHEN c.seq = excluded.seq AND c.written_at > excluded.written_at THEN c.document
    ELSE excluded.document END
RETURNING type, id, seq`
}

// CheckpointCountsSQL is the condition for a checkpoint k to count: its stage wasn't done since.
const CheckpointCountsSQL = `NOT EXISTS (
    SELECT FROM {journal} j WHERE j.type = k.type AND j.id = k.id AND j.seq >= k.seq
      AND j.outcome IN ('done', 'joined', 'signalled'))`

// DeleteCheckpointsSQL deletes the checkpoints of some tasks. For its form see TakeAnyWaitSQL.
const DeleteCheckpointsSQL = `
DELETE FROM {checkpoints} c
USING (SELECT id, $1::int AS type FROM unnest($2::bigint[]) AS id OFFSET 0) u
WHERE c.type = ANY (ARRAY[u.type]) AND c.id BETWEEN u.id AND u.id`
