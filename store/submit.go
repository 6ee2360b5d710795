package store

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	submitBatch  = 500
	submitLinger = time.Millisecond
	// submitPatience bounds the tries to find out whether a commit happened.
	submitPatience = 10 * time.Second
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
	done    *sync.WaitGroup
}

func (item *submitItem) size() int { return len(item.context) }

// Submit accepts tasks of a tenant, which must be valid. It returns when all of
// them are durable or refused, with a result for each in the same order; one
// task's fault is no fault of the others. Those that the tenant's quota of pending tasks
// leaves no room for are CodeQuota. It keeps the contexts, which nobody may change from then
// on, and nothing else of the tasks.
func (s *Store) Submit(ctx context.Context, tenant string, tasks []asyncflow.NewTask) []Submitted {
	results := make([]Submitted, len(tasks))
	defer s.letIn(ctx, tenant, tasks, results)()
	s.submit(ctx, tenant, tasks, results)
	return results
}

// SubmitNotice submits a task of asyncflow's own, whatever the tenant's quotas.
func (s *Store) SubmitNotice(ctx context.Context, tenant string, task asyncflow.NewTask) Submitted {
	results := make([]Submitted, 1)
	s.submit(ctx, tenant, []asyncflow.NewTask{task}, results)
	return results[0]
}

// submit submits those tasks that have no error in results.
func (s *Store) submit(ctx context.Context, tenant string, tasks []asyncflow.NewTask, results []Submitted) {
	byType := map[string][]int{}
	for i, task := range tasks {
		if results[i].Err == nil {
			byType[task.Type] = append(byType[task.Type], i)
		}
	}
	var done sync.WaitGroup
	for name, indexes := range byType {
		items, err := s.newItems(ctx, tenant, name, tasks, indexes, results)
		if err != nil {
			for _, i := range indexes {
				results[i].Err = err
			}
			continue
		}
		done.Add(len(items))
		for i := range items {
			items[i].done = &done
		}
		plain, keyed := splitKeyed(items)
		s.submits.add(TypeKey{tenant, name}, plain...)
		s.keyed.add(TypeKey{tenant, name}, keyed...)
	}
	done.Wait()
	s.countSubmitted(tenant, byType, results)
	s.readExisting(ctx, tenant, tasks, results)
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
	ctx, cancel := context.WithTimeout(ctx, submitPatience)
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
	ctx, cancel := context.WithTimeout(ctx, submitPatience)
	defer cancel()
	slices.SortFunc(items, func(a, b *submitItem) int { return cmp.Compare(a.id, b.id) })
	for part := range byRoll(items) {
		s.insertTasks(ctx, key, part)
	}
	for _, item := range items {
		item.done.Done()
	}
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
