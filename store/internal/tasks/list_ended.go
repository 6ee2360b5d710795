package tasks

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A page of tasks by their ends must know all tasks that match: there is no index by the time of an
// end, as each task would pay for it. So few of them may match.
const (
	// MaxSorted is how many tasks may match, and sortLook how many may be searched.
	MaxSorted = 5000
	sortLook  = 50_000
	sortPage  = 500 // tasks in a page that is read to sort
	sortTime  = 3 * time.Second
)

// EndPlace is a place in a list of tasks by their ends; zero: the beginning.
type EndPlace struct {
	At time.Time
	ID asyncflow.TaskID
}

// compare orders places: the latest end comes first.
func (p EndPlace) compare(q EndPlace) int {
	return cmp.Or(q.At.Compare(p.At), cmp.Compare(p.ID.Type, q.ID.Type),
		cmp.Compare(q.ID.Number, p.ID.Number))
}

func endOf(t Task) EndPlace { return EndPlace{t.FinishedAt, t.ID} }

// EndedPage lists final tasks by their ends, the latest first, or with Reverse the earliest: up to
// Limit tasks behind a place.
// next is the place of the last one; zero: there are no more. If more than MaxSorted tasks match,
// or it takes too long to find them, that is CodeInvalid, for the field order.
func (s *lists) EndedPage(
	ctx context.Context, tenant string, f Filter, after EndPlace,
) (tasks []Task, next EndPlace, err error) {
	if !f.Status.Final() && f.EndedSince.IsZero() && f.EndedUntil.IsZero() {
		return nil, next, asyncflow.InvalidField("order",
			"is ended, which needs a status of final tasks, ended_since or ended_until")
	}
	if f.Text != "" {
		return nil, next, asyncflow.InvalidField("text", "can't be looked for with order=ended, "+
			"which reads all tasks that match")
	}
	compare := EndPlace.compare
	if f.Reverse {
		compare = func(p, q EndPlace) int { return q.compare(p) }
	}
	limit := f.Limit
	f.Limit = sortPage
	f.Reverse = false // pages are read to be sorted
	matched, looked := 0, 0
	for until := time.Now().Add(sortTime); ; {
		page, err := s.TaskPage(ctx, tenant, f)
		if err != nil {
			return nil, next, postgres.Wrap(err, "EndedPage(%q, %q)", tenant, f.Type)
		}
		matched += len(page.Tasks)
		looked += page.Searched.Tasks
		for _, t := range page.Tasks {
			if after == (EndPlace{}) || compare(after, endOf(t)) < 0 {
				tasks = append(tasks, t)
			}
		}
		slices.SortFunc(tasks, func(a, b Task) int { return compare(endOf(a), endOf(b)) })
		tasks = tasks[:min(len(tasks), limit+1)]
		f.After, f.FromType = page.Next, page.NextType
		switch {
		case matched > MaxSorted:
			return nil, next, asyncflow.InvalidField("order", "is ended, but more than %d tasks "+
				"match, which are too many to sort; narrow the filter, as by ended_since",
				MaxSorted)
		case page.Next == 0 && page.NextType == "":
			if len(tasks) > limit {
				tasks = tasks[:limit]
				next = endOf(tasks[limit-1])
			}
			return tasks, next, nil
		case looked >= sortLook || time.Now().After(until):
			return nil, next, asyncflow.InvalidField("order", "is ended, but after %d tasks or %s "+
				"the search was not over; narrow the filter, as by ended_since or since", sortLook,
				sortTime)
		}
	}
}
