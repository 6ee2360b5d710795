package records

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// spawnRow is a new row of spawns: the tasks that a settled attempt starts.
type spawnRow struct {
	number  int32
	settled *asyncflow.Settlement
}

// starts reports whether a settlement starts tasks.
func starts(s *asyncflow.Settlement) bool {
	return len(s.Outcome.Spawn) > 0 && s.Outcome.Kind == asyncflow.OutcomeDone
}

// addSpawn adds the tasks that a settlement starts. FollowUp makes them: as children of the task if
// it waits for them.
func (r *Inserts) addSpawn(t *config.Type, s *asyncflow.Settlement) {
	r.spawns = append(r.spawns, spawnRow{t.Number(), s})
	if s.Outcome.Join != nil {
		return
	}
	r.Outbox = append(r.Outbox, StartRow(t.Number(), s.Lease.ID.Number, s.Lease.Seq))
}

// StartRow returns the row of outbox that says that the tasks of an attempt are to be made.
func StartRow(number int32, id int64, seq int) OutboxRow {
	return OutboxRow{Kind: OutboxStart, Number: number, ID: id, At: seq}
}

func queueSpawn(b *pgx.Batch, t *config.TableNames, r spawnRow) {
	l := &r.settled.Lease
	tasks := r.settled.Outcome.Spawn
	if r.settled.Outcome.Join != nil {
		tasks = byRank(tasks)
	}
	text := asyncflow.SpawnText(labelled(tasks, l.Options.Labels))
	b.Queue(t.SQL(0, `INSERT INTO {spawns} (type, id, seq, depth, count, hash, tasks)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`), r.number, l.ID.Number, l.Seq,
		l.Options.SpawnDepth(), len(tasks), r.settled.Outcome.SpawnHash(), text)
}

// labelled returns tasks with the labels of the task that starts them, unless they have their own.
func labelled(tasks []asyncflow.SpawnedTask, l asyncflow.Labels) []asyncflow.SpawnedTask {
	if l.IsZero() {
		return tasks
	}
	tasks = slices.Clone(tasks)
	for i := range tasks {
		if tasks[i].Labels.IsZero() {
			tasks[i].Labels = l
		}
	}
	return tasks
}

// byRank returns tasks in the order in which they are made if their parent waits for them.
func byRank(tasks []asyncflow.SpawnedTask) []asyncflow.SpawnedTask {
	order := asyncflow.OrderByType(tasks)
	if order == nil {
		return tasks
	}
	sorted := make([]asyncflow.SpawnedTask, len(tasks))
	for rank, i := range order {
		sorted[rank] = tasks[i]
	}
	return sorted
}
