package store

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	submitBatch  = 500
	submitLinger = time.Millisecond
	// SubmitPatience bounds the tries to write a task, and to find out whether a commit
	// happened, from when it came. Its caller hears of it then, if that is when ctx ends.
	SubmitPatience = 10 * time.Second
)

// Submitted is the result of one submitted task: Err, or what it became.
type Submitted struct {
	ID        asyncflow.TaskID
	Stage     string
	Status    asyncflow.Status
	OrderTime time.Time
	Existing  bool // the key stood for this task already
	Err       error
}

// submitItem is a task on its way into a batch. It shares nothing with the caller but the
// context, which nobody changes.
type submitItem struct {
	id      int64
	verdict asyncflow.Verdict // where its first token row goes
	created time.Time
	options *string
	context json.RawMessage
	flowKey string
	key     *submitKey // nil without a key
	result  *Submitted
	until   time.Time // from then on it isn't tried any more
	call    *submitCall
}

// submitCall waits for the items of one call.
type submitCall struct {
	left    atomic.Int32
	written chan struct{} // closed when none is left
}

func newSubmitCall(n int) *submitCall {
	c := &submitCall{written: make(chan struct{})}
	c.left.Store(int32(n))
	return c
}

// done ends n items, whose results are there. It is called once for each of them.
func (c *submitCall) done(n int) {
	if n > 0 && c.left.Add(-int32(n)) == 0 {
		close(c.written)
	}
}

func (item *submitItem) size() int { return len(item.context) }

// Submit accepts tasks of a tenant, which must be valid. It returns when all of
// them are durable or refused, with a result for each in the same order, or when ctx ends:
// then all are CodeUncertain. One task's fault is no fault of the others. Those that the
// tenant's quota of pending tasks leaves no room for are CodeQuota. It keeps the contexts,
// which nobody may change from then on, and nothing else of the tasks.
func (s *Store) Submit(ctx context.Context, tenant string, tasks []asyncflow.NewTask) []Submitted {
	results := make([]Submitted, len(tasks))
	leave := s.letIn(ctx, tenant, tasks, results)
	return s.submit(ctx, tenant, tasks, results, leave)
}

// SubmitNotice submits a task of asyncflow's own, whatever the tenant's quotas.
func (s *Store) SubmitNotice(ctx context.Context, tenant string, task asyncflow.NewTask) Submitted {
	return s.submit(ctx, tenant, []asyncflow.NewTask{task}, make([]Submitted, 1), func() {})[0]
}

// submit submits those tasks that have no error in results, and calls written when all of
// them are written or refused. Once ctx has ended nobody knows yet what becomes of them.
func (s *Store) submit(ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []Submitted, written func()) []Submitted {
	byType := map[string][]int{}
	open := 0
	for i, task := range tasks {
		if results[i].Err == nil {
			byType[task.Type] = append(byType[task.Type], i)
			open++
		}
	}
	call, until := newSubmitCall(open), submitUntil(ctx)
	for name, indexes := range byType {
		items, err := s.newItems(ctx, tenant, name, tasks, indexes, results)
		if err != nil {
			for _, i := range indexes {
				results[i].Err = err
			}
		}
		open -= len(indexes) - len(items)
		call.done(len(indexes) - len(items))
		for _, item := range items {
			item.call, item.until = call, until
		}
		plain, keyed := splitKeyed(items)
		s.submits.add(TypeKey{tenant, name}, plain...)
		s.keyed.add(TypeKey{tenant, name}, keyed...)
	}
	if open > 0 {
		select {
		case <-call.written:
		case <-ctx.Done():
			go func() {
				<-call.written
				written()
			}()
			return unknown(ctx, len(tasks))
		}
	}
	written()
	s.countSubmitted(tenant, byType, results)
	s.readExisting(ctx, tenant, tasks, results)
	return results
}

// submitUntil returns when tasks that came now are given up.
func submitUntil(ctx context.Context) time.Time {
	until := time.Now().Add(SubmitPatience)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		return deadline
	}
	return until
}

// unknown are the results of n tasks of which it isn't known what becomes of them.
func unknown(ctx context.Context, n int) []Submitted {
	results := make([]Submitted, n)
	for i := range results {
		results[i].Err = notKnown(ctx.Err())
	}
	return results
}

// newItems gives the tasks of one type their ids and places.
func (s *Store) newItems(ctx context.Context, tenant, name string, tasks []asyncflow.NewTask, indexes []int, results []Submitted) ([]*submitItem, error) {
	t, err := s.Catalog.Fresh(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	t, ids, err := s.takeNumbers(ctx, t, len(indexes))
	if err != nil {
		return nil, err
	}
	now := s.Clock.Now()
	all := make([]submitItem, len(indexes))
	items := make([]*submitItem, 0, len(indexes))
	for n, i := range indexes {
		if window := tasks[i].KeyWindow; window > t.Retention {
			results[i].Err = asyncflow.InvalidField("key_window", "is %s; tasks of %s are kept for %s", window, name, t.Retention)
			continue
		}
		id := asyncflow.NewTaskID(name, t.End, ids[n])
		order := asyncflow.SubmitOrder(t.TaskType, tasks[i], now)
		first := asyncflow.Verdict{Kind: asyncflow.Retry, Stage: t.Stages[0].Name, Attempt: 1, OrderTime: order, Reason: asyncflow.WaitDelay}
		results[i] = Submitted{ID: id, Stage: first.Stage, Status: first.Status(now), OrderTime: order}
		all[n] = submitItem{id: id.Number, verdict: first, created: now, options: optionsText(tasks[i].Options),
			context: tasks[i].Context, flowKey: t.FlowKeyOf(tasks[i].Options), key: keyOf(tasks[i], now, t.Retention.Std()), result: &results[i]}
		items = append(items, &all[n])
	}
	return items, nil
}

// takeNumbers takes ids, trying again for a while when the database is away. The type comes back
// as it is with the roll open that they are of.
func (s *Store) takeNumbers(ctx context.Context, t *Type, n int) (_ *Type, ids []int64, err error) {
	if ids := s.numbers.atHand(t, n); ids != nil {
		return t, ids, nil
	}
	ctx, cancel := context.WithTimeout(ctx, SubmitPatience)
	defer cancel()
	final := func(err error) bool { return asyncflow.CodeOf(err) != asyncflow.CodeUnavailable }
	err = s.persistUntil(ctx, "take numbers", t.Key(), final, func() (err error) {
		t, ids, err = s.numbers.take(ctx, t, n)
		return err
	})
	return t, ids, err
}

// optionsText returns the options as they are stored; nil when there are none.
func optionsText(o asyncflow.Options) *string {
	if o.IsZero() {
		return nil
	}
	doc, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers and a string
	}
	text := string(doc)
	return &text
}

// writeSubmits writes one batch and tells each item its result.
func (s *Store) writeSubmits(ctx context.Context, key TypeKey, items []*submitItem) {
	ctx, cancel, items := begin(ctx, items)
	defer cancel()
	slices.SortFunc(items, func(a, b *submitItem) int { return cmp.Compare(a.id, b.id) })
	for part := range byRoll(items) {
		s.insertTasks(ctx, key, part)
	}
	for _, item := range items {
		item.call.done(1)
	}
}

// begin leaves out the items of a batch that have waited too long for the ones before, as
// the database didn't answer: they are refused. It returns a context that ends when the last
// one of the others is given up.
func begin(ctx context.Context, items []*submitItem) (context.Context, context.CancelFunc, []*submitItem) {
	now, until := time.Now(), time.Time{}
	items = slices.DeleteFunc(items, func(item *submitItem) bool {
		late := !now.Before(item.until)
		switch {
		case late:
			item.result.Err = &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: time.Second,
				Message: "the database doesn't answer; try again"}
			item.call.done(1)
		case item.until.After(until):
			until = item.until
		}
		return late
	})
	ctx, cancel := context.WithDeadline(ctx, until)
	return ctx, cancel, items
}

// position returns the roll that an item's id names.
func (item *submitItem) position() int { return asyncflow.TaskID{Number: item.id}.Position() }

// byRoll divides items, sorted by roll, by it. All are of the same one, but for a moment
// after it has opened.
func byRoll(items []*submitItem) iter.Seq[[]*submitItem] {
	return func(yield func([]*submitItem) bool) {
		for len(items) > 0 {
			n := slices.IndexFunc(items, func(item *submitItem) bool { return item.position() != items[0].position() })
			if n < 0 {
				n = len(items)
			}
			if !yield(items[:n:n]) {
				return
			}
			items = items[n:]
		}
	}
}
