package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
)

// PassTree submits one task with children, and waits until its end. It measures what they cost.
func (r *Rig) PassTree(ctx context.Context, t *TaskType, children int) (c Cost, err error) {
	ctx, cancel := context.WithTimeout(ctx, Patience(children))
	defer cancel()
	meter, err := r.StartMeter(ctx)
	if err != nil {
		return c, err
	}
	if err := r.API.Submit(ctx, t.Name, r.Take(t, 1)); err != nil {
		return c, err
	}
	t.Submitted += children
	if err := r.awaitFinal(ctx, t, meter.Before.Deliveries+children); err != nil {
		return c, fmt.Errorf("waiting for the parent: %w", err)
	}
	if c, err = meter.Stop(ctx); err != nil {
		return c, err
	}
	return c, r.checkFinals(ctx, t)
}

// JoinTimes waits for parents, from number first on, to come to the stage after their children. It
// returns for each how many ms after the settlement of its last child it came.
func (r *Rig) JoinTimes(ctx context.Context, t *TaskType, first, parents int) ([]float64, error) {
	arrived, err := r.awaitArrivals(ctx, first, first+parents)
	if err != nil {
		return nil, err
	}
	if err := r.awaitFinal(ctx, t, 0); err != nil {
		return nil, err
	}
	settled, err := r.DB.lastChildren(ctx, t.Name)
	if err != nil {
		return nil, err
	}
	times := make([]float64, parents)
	for i, at := range arrived {
		last, ok := settled[first+i]
		if !ok {
			return nil, fmt.Errorf("broken: task %d has no children", first+i)
		}
		times[i] = float64(at-last.UnixNano()) / 1e6
	}
	return times, r.checkFinals(ctx, t)
}

// lastChildren returns when the last child of each parent ended, by the parent's number.
func (d *Database) lastChildren(ctx context.Context, taskType string) (map[int]time.Time, error) {
	all := map[int]time.Time{}
	tasks, err := d.Tables(ctx, "task", taskType)
	if err != nil {
		return nil, err
	}
	journals, err := d.Tables(ctx, "journal", taskType)
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		rows, err := d.Conn.Query(ctx, `
			SELECT (c.context::json->>'n')::int, max(j.at)
			FROM `+tasks[i].Rows()+` c JOIN `+journals[i].Rows()+` j USING (id)
			WHERE c.options->'child' IS NOT NULL AND j.final IS NOT NULL GROUP BY 1`)
		if err != nil {
			return nil, err
		}
		var n int
		var at time.Time
		if _, err = pgx.ForEachRow(rows, []any{&n, &at}, func() error {
			if at.After(all[n]) {
				all[n] = at
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// SubmitOne submits the next task of a type, and returns its id.
func (r *Rig) SubmitOne(ctx context.Context, t *TaskType) (string, error) {
	answer, err := r.API.Call(ctx, http.MethodPost, "/v1/tasks",
		AppendTask(nil, t.Name, r.Take(t, 1), payload.Usual, ""))
	if err != nil {
		return "", err
	}
	var task struct{ ID string }
	err = json.Unmarshal(answer, &task)
	return task.ID, err
}

// Undone returns how much is left to do of what tasks' ends brought about: rows of outbox that are
// due.
func (d *Database) Undone(ctx context.Context) (n int, err error) {
	err = d.Conn.QueryRow(ctx,
		`SELECT count(*) FROM `+Schema+`.outbox WHERE due <= now()`).Scan(&n)
	return n, err
}

// LastEnd returns when the task of a type ended that ended last.
func (d *Database) LastEnd(ctx context.Context, taskType string) (at time.Time, err error) {
	journals, err := d.Tables(ctx, "journal", taskType)
	if err != nil {
		return at, err
	}
	err = d.Conn.QueryRow(ctx, `SELECT max(at) FROM `+journals[len(journals)-1].Rows()+
		` j WHERE final IS NOT NULL`).Scan(&at)
	return at, err
}

// AwaitAll waits until the worker got a number of deliveries in all, and no task of a type is live.
func (r *Rig) AwaitAll(ctx context.Context, t *TaskType, deliveries int) error {
	if err := r.awaitFinal(ctx, t, deliveries); err != nil {
		return err
	}
	return r.checkFinals(ctx, t)
}
