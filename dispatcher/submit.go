package dispatcher

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/ledger"
	"github.com/asyncflow/asyncflow/store"
)

// Submit accepts tasks of a tenant, which must be valid. It returns when each of them is durable or
// refused, with the results in the same order. When ctx ends, it returns CodeUncertain for all. A
// refused task doesn't affect other tasks. Tasks over the tenant's quota of pending tasks are
// CodeQuota. Submit keeps the contexts, which the caller must not change afterwards, and no other
// part of the tasks.
func (c *Committer) Submit(
	ctx context.Context, tenant string, tasks []asyncflow.NewTask,
) []store.Submitted {
	results := make([]store.Submitted, len(tasks))
	leave := c.pending.enter(ctx, tenant, tasks, results)
	return c.submit(ctx, tenant, tasks, results, leave)
}

// SubmitNotice submits a task of asyncflow's own, regardless of the tenant's quotas.
func (c *Committer) SubmitNotice(
	ctx context.Context, tenant string, task asyncflow.NewTask,
) store.Submitted {
	return c.submit(ctx, tenant, []asyncflow.NewTask{task}, make([]store.Submitted, 1),
		func() {})[0]
}

// submit submits the tasks without an error in results, and calls written when all of them are
// written or refused. If ctx ends before that, it isn't known yet whether they are written.
func (c *Committer) submit(
	ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []store.Submitted,
	written func(),
) []store.Submitted {
	results = c.submitOnce(ctx, tenant, tasks, results, written)
	c.resolveKeys(ctx, tenant, tasks, results)
	return results
}

// submitOnce is submit without a look at the existing tasks to which keys belong.
func (c *Committer) submitOnce(
	ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []store.Submitted,
	written func(),
) []store.Submitted {
	byType := map[string][]int{}
	open := 0
	for i, task := range tasks {
		if results[i].Err == nil {
			byType[task.Type] = append(byType[task.Type], i)
			open++
		}
	}
	common := submitCall{left: &atomic.Int32{}, written: make(chan struct{}), came: time.Now()}
	common.left.Store(int32(open))
	common.read = sync.OnceValue(func() error { return c.store.Catalog.RefreshTenant(ctx, tenant) })
	var begun sync.WaitGroup
	for name, indexes := range byType {
		call := common
		key := store.TypeKey{Tenant: tenant, Type: name}
		if len(byType) == 1 {
			c.begin(ctx, &call, key, tasks, indexes, results)
		} else { // each type may wait for ids and for capacity
			begun.Go(func() { c.begin(ctx, &call, key, tasks, indexes, results) })
		}
	}
	begun.Wait()
	if open > 0 {
		select {
		case <-common.written:
		case <-ctx.Done():
			go func() {
				<-common.written
				written()
			}()
			return unknown(ctx, len(tasks))
		}
	}
	written()
	c.countNew(tenant, byType, results)
	return results
}

// begin gives the tasks of one type their ids, begins as many as there is capacity for, and queues
// all of them for writing.
func (c *Committer) begin(
	ctx context.Context, call *submitCall, key store.TypeKey, tasks []asyncflow.NewTask,
	indexes []int, results []store.Submitted,
) {
	t, items, err := c.newItems(ctx, call, key, tasks, indexes, results)
	if err != nil {
		for _, i := range indexes {
			results[i].Err = err
		}
	}
	until := submitUntil(ctx, call.came)
	for _, item := range items {
		item.call = call
		item.until = until
	}
	if c.dispatcher != nil && len(items) > 0 {
		call.unused = func(s *submission) { c.dispatcher.forgo(t, 1, len(s.Context)) }
		c.dispatcher.admitNew(ctx, t, insertions(items), ledger.AdmitPatience-time.Since(call.came))
	}
	call.committer = c
	call.key = key
	c.enqueue(key, items)
	call.done(len(indexes) - len(items))
}

// enqueue queues tasks of one type for writing. Tasks with idempotency keys form batches of their
// own, because another submit of the same key may hold them up; so do tasks with dependencies,
// because these are looked up.
func (c *Committer) enqueue(key store.TypeKey, items []*submission) {
	plain := make([]*write, 0, len(items))
	var keyed, replacing []*submission
	for _, item := range items {
		switch {
		case len(item.DependsOn) > 0:
			c.dependent.Add(key, item)
			continue
		case item.Key != nil && item.Key.Replace != nil:
			replacing = append(replacing, item)
			continue
		case item.Key != nil:
			keyed = append(keyed, item)
			continue
		}
		item.write = write{key: key, insert: item}
		plain = append(plain, &item.write)
	}
	c.add(key, plain...)
	c.addKeyed(key, keyed)
	c.addReplacing(key, replacing)
}

// newItems gives the tasks of one type their ids and places. However many types of a call are
// unknown, they are read anew once.
func (c *Committer) newItems(
	ctx context.Context, call *submitCall, key store.TypeKey, tasks []asyncflow.NewTask,
	indexes []int, results []store.Submitted,
) (*store.Type, []*submission, error) {
	t, err := c.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		if err := call.read(); err != nil {
			return nil, nil, err
		}
		if t, err = c.store.Catalog.Type(key.Tenant, key.Type); err != nil {
			return nil, nil, err
		}
	}
	t, ids, err := c.allotNumbers(ctx, t, len(indexes))
	if err != nil {
		return nil, nil, err
	}
	now := c.store.Clock.Now()
	all := make([]submission, len(indexes))
	items := make([]*submission, 0, len(indexes))
	for n, i := range indexes {
		task := &tasks[i]
		if window := task.KeyWindow; window.Std() > t.Retention.Std() {
			results[i].Err = asyncflow.InvalidField("key_window",
				"is %s; tasks of %s are kept for %s", window, t.Name, t.Retention)
			continue
		}
		item := store.NewInsertion(t, ids[n], task, now)
		results[i] = store.Submitted{ID: item.ID, Stage: item.Verdict.Stage,
			Status: item.Verdict.Status(now), OrderTime: item.Verdict.OrderTime,
			CreatedAt: item.Created, WaitsUntil: asyncflow.WaitsUntil(task.DependsOn, now)}
		all[n] = submission{result: &results[i], Insertion: item}
		items = append(items, &all[n])
	}
	return t, items, nil
}

// allotNumbers takes ids. It retries for a while if the database is unreachable. It returns the
// type with the open roll to which the ids belong.
func (c *Committer) allotNumbers(
	ctx context.Context, t *store.Type, n int,
) (_ *store.Type, ids []int64, err error) {
	if ids := c.store.NumbersAtHand(t, n); ids != nil {
		return t, ids, nil
	}
	ctx, cancel := context.WithTimeout(ctx, SubmitPatience)
	defer cancel()
	final := func(err error) bool { return asyncflow.CodeOf(err) != asyncflow.CodeUnavailable }
	again := false
	err = c.persist(ctx, "take numbers", t.Key(), final, func() (err error) {
		if again { // a table may be locked: tries must not take all connections
			select {
			case c.retakes <- struct{}{}:
				defer func() { <-c.retakes }()
			case <-ctx.Done():
				return unanswered("the database doesn't answer; try again")
			}
		}
		again = true
		t, ids, err = c.store.AllotNumbers(ctx, t, n)
		return err
	})
	return t, ids, err
}

// countNew counts the tasks of a call that are new.
func (c *Committer) countNew(tenant string, byType map[string][]int, results []store.Submitted) {
	for name, indexes := range byType {
		n := 0
		for _, i := range indexes {
			if results[i].Err == nil && !results[i].Existing {
				n++
			}
		}
		if n > 0 { // otherwise the type may not exist
			c.store.CountSubmitted(store.TypeKey{Tenant: tenant, Type: name}, n)
		}
	}
}

// admitNew gives leases to as many new tasks as there is capacity for: of the due tasks, the first
// in order, and no more than this node's part (see ownPart). It waits briefly for capacity if some
// will come soon. The other tasks go in line, as do tasks that need more than capacity: a flow key,
// or a certain endpoint. All are of one stage; children of other stages go in line.
func (d *Dispatcher) admitNew(
	ctx context.Context, t *store.Type, items []*store.Insertion, patience time.Duration,
) {
	if t.Paused() {
		return
	}
	now := d.store.Clock.Now()
	stage := items[0].Verdict.Stage
	due := make([]*store.Insertion, 0, len(items))
	for _, item := range items {
		v := item.Verdict
		if v.Reason == asyncflow.WaitClaimer || v.Stage != stage {
			continue
		}
		if item.FlowKey == "" && !v.OrderTime.After(now) && len(item.DependsOn) == 0 {
			due = append(due, item)
		}
	}
	if len(due) == 0 {
		return
	}
	var r reservation
	own := len(due)
	if d.mayBeginAtOnce(t, stage) {
		own = d.ownPart(len(due), now)
		r = d.reserveNew(ctx, t, own, now, patience, func(t *store.Type) bool {
			return d.mayBeginAtOnce(t, stage)
		})
	}
	if r.n < own { // the remaining tasks are first in line
		d.agenda.Filling(t.Key())
	}
	if r.n == 0 {
		return
	}
	slices.SortFunc(due, func(a, b *store.Insertion) int {
		return cmp.Or(a.Verdict.OrderTime.Compare(b.Verdict.OrderTime),
			cmp.Compare(a.ID.Number, b.ID.Number))
	})
	bytes := 0
	for _, item := range due[:r.n] {
		l := asyncflow.Lease{ID: item.ID, Seq: 1, Context: item.Context, Options: item.Options,
			OrderTime: item.Verdict.OrderTime, CreatedAt: item.Created}
		l.DueAt = l.OrderTime
		if l.DueAt.Before(item.Created) {
			l.DueAt = item.Created
		}
		l.Stage, l.Attempt = t.Mapped(item.Verdict.Stage, item.Verdict.Attempt)
		item.Lease = &l
		bytes += l.Size()
	}
	r.use(r.n, bytes)
}
