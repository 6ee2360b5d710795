package dispatcher

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// takeTries is how often a submit takes its key from another task, before it gives up: each time,
// another submit took it in between.
const takeTries = 5

// comparedMost is the most bytes of a context that is compared by its value. Contexts with more are
// compared only byte by byte, before this: they count as different if their bytes differ.
const comparedMost = 1 << 20

// cancelledByKey is the reason of a cancel by asyncflow.ConflictCancel.
const cancelledByKey = "cancelled by a later submit with its idempotency key"

// resolveKeys decides about tasks with keys that belong to existing ones, as their OnConflict says.
// If an existing task was dropped with its roll, and this node learns it only now, the new task is
// submitted after all.
func (c *Committer) resolveKeys(
	ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []store.Submitted,
) {
	for i := range results {
		if r := &results[i]; r.Existing && r.Err == nil && !r.Replaced {
			c.resolveKey(ctx, tenant, tasks[i], r)
		}
	}
}

func (c *Committer) resolveKey(
	ctx context.Context, tenant string, task asyncflow.NewTask, r *store.Submitted,
) {
	for try := 0; r.Existing && r.Err == nil && task.OnConflict == asyncflow.ConflictCancel; try++ {
		if try == takeTries {
			r.Err = asyncflow.Errorf(asyncflow.CodeConflict,
				"other submits take the key all the time; it stands for task %s", r.ID)
			return
		}
		task.Takes = r.ID
		_, err := c.store.Cancel(ctx, tenant, r.ID, cancelledByKey)
		over := asyncflow.CodeOf(err) == asyncflow.CodeConflict ||
			asyncflow.CodeOf(err) == asyncflow.CodeNotFound
		if err != nil && !over {
			r.Err = err
			return
		}
		*r = c.submitAgain(ctx, tenant, task)
	}
	if !r.Existing || r.Err != nil {
		return
	}
	if task.OnConflict == asyncflow.ConflictReject {
		r.Err = keyReused(r.ID, "")
		return
	}
	if r.Reused {
		if r.Err = c.sameContext(ctx, tenant, r.ID, task.Context); r.Err != nil {
			return
		}
	}
	c.readExisting(ctx, tenant, task, r)
}

// submitAgain submits a task once more, without a look at the existing one.
func (c *Committer) submitAgain(
	ctx context.Context, tenant string, task asyncflow.NewTask,
) store.Submitted {
	return c.submitOnce(ctx, tenant, []asyncflow.NewTask{task}, make([]store.Submitted, 1),
		func() {})[0]
}

// readExisting fills in how the existing task stands.
func (c *Committer) readExisting(
	ctx context.Context, tenant string, task asyncflow.NewTask, r *store.Submitted,
) {
	existing, err := c.store.BareTask(ctx, tenant, r.ID)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		t, missing := c.store.Catalog.Type(tenant, r.ID.Type)
		if missing == nil && !t.Has(r.ID.Position()) {
			*r = c.submitAgain(ctx, tenant, task)
			return
		}
	}
	r.Stage = existing.Stage
	r.Status = existing.Status
	r.OrderTime = existing.OrderTime
	r.CreatedAt = existing.CreatedAt
	r.Err = err
	r.WaitsUntil = waitsUntil(existing)
}

// sameContext returns an error unless a task was submitted with a context of the same value.
func (c *Committer) sameContext(
	ctx context.Context, tenant string, id asyncflow.TaskID, doc []byte,
) error {
	other := keyReused(id, ", which has another context")
	if len(doc) > comparedMost {
		return other
	}
	before, err := c.store.SubmittedContext(ctx, tenant, id)
	if err != nil {
		return err
	}
	if len(before) > comparedMost {
		return other
	}
	select { // decoded, they take some ten times their bytes
	case c.compares <- struct{}{}:
		defer func() { <-c.compares }()
	case <-ctx.Done():
		return notKnown(ctx.Err())
	}
	if asyncflow.SameJSON(before, doc) {
		return nil
	}
	return other
}

// keyReused returns the error for a key that belongs to another task.
func keyReused(holder asyncflow.TaskID, why string) error {
	return &asyncflow.Error{Code: asyncflow.CodeKeyReused, Fields: []asyncflow.FieldError{
		{Field: "key", Message: "stands for task " + holder.String() + why}}}
}
