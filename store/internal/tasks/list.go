package tasks

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Page is some of the tasks that a filter finds.
type Page struct {
	Tasks []Task
	// Next is Filter.After of the page after this one; 0: there is none, or that page begins with
	// all tasks of NextType.
	Next     int64
	NextType string // Filter.FromType of the page after this one, if it lists all types; "": none
	Searched Searched
	windows  int // that were read
}

// ends reports whether a page ends here, as its search read as much as one may.
func (p Page) ends(f Filter) bool {
	return p.Searched.Tasks >= PageLook || p.Searched.bytes >= PageText ||
		(f.Type == "" || f.Parent.Type != "") && p.windows >= pageRuns
}

// Searched are the tasks that were searched for a page. A page that is full may have ended before
// the last of them.
type Searched struct {
	Tasks       int
	ByIndex     int       // how many of them were found by the index of a searchable field
	bytes       int       // of their contexts and outputs, if these were searched
	From, Until time.Time // when the first and the last of them were submitted; zero: there is none
}

// add adds the tasks of a window. The windows of a roll are not in the order of time.
func (s *Searched) add(v view) {
	s.Tasks += v.looked
	s.ByIndex += v.byIndex
	s.bytes += v.bytes
	if v.created.IsZero() {
		return
	}
	if s.From.IsZero() || v.created.Before(s.From) {
		s.From = v.created
	}
	if v.newest.After(s.Until) {
		s.Until = v.newest
	}
}

// A page is searched for in windows of candidates, small ones first, as most callers look for
// recent tasks. After PageLook candidates the page ends with the tasks found so far, however few.
// So the time for a page doesn't grow with the history (measured: 5 µs for each candidate). A page
// that searches contexts and outputs also ends after about PageText bytes of them, and a page of
// the tasks of one parent, or of all types, after pageRuns windows: each takes a query.
const (
	firstLook = 200
	PageLook  = 5000
	PageText  = 16 << 20
	pageRuns  = 200
)

// sinceSlack is how far the order of numbers may differ from the order of time: the numbers
// of a block are used for about ten seconds (see blockLife).
const sinceSlack = time.Minute

// Tasks lists up to Limit tasks, newest first, without their contexts and results. It searches
// however long it takes.
func (s *lists) Tasks(ctx context.Context, tenant string, f Filter) ([]Task, error) {
	ctx = postgres.Patient(ctx)
	var all []Task
	for limit := f.Limit; ; {
		page, err := s.TaskPage(ctx, tenant, f)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Tasks...)
		f.After = page.Next
		f.FromType = page.NextType
		f.Limit = limit - len(all)
		if page.Next == 0 && page.NextType == "" || f.Limit <= 0 {
			return all, nil
		}
	}
}

// TaskPage lists the next tasks of a type, newest first, or of all types, by the names of the
// types, without their contexts and results: up to Limit, or fewer, even none, after a while of
// searching. There are more where Next is not 0, or NextType not "". With Reverse, the whole order
// is the other way round.
func (s *lists) TaskPage(ctx context.Context, tenant string, f Filter) (p Page, err error) {
	types, err := s.typesFor(ctx, tenant, f)
	if err != nil {
		return p, postgres.Wrap(err, "TaskPage(%q, %q)", tenant, f.Type)
	}
	if types, err = s.withCandidates(ctx, types, f); err != nil {
		return p, postgres.Wrap(err, "TaskPage(%q, %q)", tenant, f.Type)
	}
	if f.Reverse {
		slices.Reverse(types)
	}
	for _, t := range types {
		if f.Type == "" && t.Name != f.FromType {
			f.After = 0
		}
		if len(p.Tasks) == f.Limit || p.ends(f) {
			p.NextType = t.Name
			return p, nil
		}
		p, err = s.addTasks(ctx, t, f, p)
		if err != nil {
			return p, postgres.Wrap(err, "TaskPage(%q, %q)", tenant, t.Name)
		}
		if p.Next > 0 {
			if f.Type == "" {
				p.NextType = t.Name
			}
			return p, nil
		}
	}
	return p, nil
}

// addTasks adds the next tasks of a type to a page.
func (s *lists) addTasks(
	ctx context.Context, t *config.Type, f Filter, p Page,
) (with Page, err error) {
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) (err error) {
		with, err = s.readPage(ctx, t, f, p)
		return err
	})
	switch {
	case f.Type == "" && asyncflow.CodeOf(err) == asyncflow.CodeNotFound: // it was just deleted
		return p, nil
	case err != nil:
		return p, err
	}
	var tasks []*Task
	for i := len(p.Tasks); i < len(with.Tasks); i++ {
		tasks = append(tasks, &with.Tasks[i])
	}
	return with, s.tellLimitWaits(ctx, t.Tenant, tasks...)
}

// readPage adds the next tasks of a type to a page.
func (s *lists) readPage(ctx context.Context, t *config.Type, f Filter, p Page) (Page, error) {
	ctx = postgres.Patient(ctx)
	c, err := s.criteriaFor(ctx, t, f)
	if err != nil {
		return Page{}, err
	}
	w, err := s.walkOf(ctx, t, f, c)
	if err != nil {
		return Page{}, err
	}
	for window := firstLook; ; window *= 4 {
		if more, err := s.advance(ctx, w); err != nil || !more {
			return p, err
		}
		if p.ends(f) {
			p.Next = w.passed()
			return p, nil
		}
		if p.windows++; w.empty() {
			continue
		}
		window = min(window, PageLook-p.Searched.Tasks)
		c.bytes = PageText - p.Searched.bytes
		v, err := s.readWindow(ctx, t, c, w.least, w.before, window, f.Limit+1-len(p.Tasks))
		if err != nil {
			return Page{}, err
		}
		p.Searched.add(v)
		if p.Tasks = append(p.Tasks, v.tasks...); len(p.Tasks) > f.Limit {
			p.Tasks = p.Tasks[:f.Limit]
			p.Next = p.Tasks[f.Limit-1].ID.Number
			return p, nil
		}
		w.pass(v)
	}
}

// view holds the tasks of one window.
type view struct {
	tasks   []Task    // that meet the criteria
	looked  int       // candidates
	byIndex int       // how many of them are by the index of a searchable field
	bytes   int       // of their contexts and outputs, if these were searched
	last    int64     // number before which the search goes on; in a reverse list, from which on
	created time.Time // of the candidate with the least number
	newest  time.Time // of the one with the greatest number
}

// listColumns are stateColumns without the contexts and results, which lists don't show.
var listColumns = strings.NewReplacer("t.context", "NULL::text", resultSQL, "NULL::text").
	Replace(stateColumns)

// readWindow reads the tasks that meet the criteria among the last candidates before a number, or
// the first ones of a reverse list. All candidates are of one range of a roll, with the number
// least or higher. Both statements see the same moment. They are planned like the hot ones: the
// small tables are never analysed, and the tasks may be anywhere.
func (s *lists) readWindow(
	ctx context.Context, t *config.Type, c criteria, least, before int64, window, limit int,
) (v view, err error) {
	position := asyncflow.TaskID{Number: before - 1}.Position()
	if c, err = c.inRoll(ctx, s.core.DB(t.Tenant), t, position); err != nil {
		return v, err
	}
	if c, err = s.withMembers(ctx, t, c, least, before, window, 0); err != nil {
		return v, err
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	postgres.QueueSettings(b, postgres.HotSettings)
	list := b.Queue(t.SQL(position, c.listSQL()),
		append(append(c.windowArgs(t, least, before, window), limit), c.args(t)...)...)
	list.Query(func(rows pgx.Rows) (err error) {
		v.tasks, err = pgx.CollectRows(rows,
			func(row pgx.CollectableRow) (Task, error) {
				return scanTask(row, t, s.core.Clock.Now())
			})
		return err
	})
	bounds := b.Queue(t.SQL(position, c.windowSQL()), c.windowArgs(t, least, before, window)...)
	bounds.QueryRow(func(row pgx.Row) error {
		var created, newest *time.Time
		err := row.Scan(&v.looked, &v.bytes, &v.last, &created, &newest)
		v.created = postgres.OrZero(created)
		v.newest = postgres.OrZero(newest)
		return err
	})
	b.Queue("COMMIT")
	err = s.core.DB(t.Tenant).Send(ctx, b)
	if c.entries != nil {
		v.byIndex = v.looked
	}
	if v.looked < window && (c.content == "" || v.bytes < c.bytes) { // the range is done
		v.last = least
		if c.reverse {
			v.last = before
		}
	}
	return v, err
}
