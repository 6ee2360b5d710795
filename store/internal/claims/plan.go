package claims

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A transaction plans what it takes if the line has tasks with rules, or if a window chooses at
// random: it first reads a page of the line for each claimer, with the tasks that the claimer may
// have, and then takes the chosen ones. Other transactions take the first tasks at once.

const (
	// pageRows is how many tasks in line one transaction looks at for a claimer, and pageSum for
	// all of them. With 5,000 tasks that it may not have, that took some 65 ms.
	pageRows = 5000
	pageSum  = 20_000
	pageMin  = 200
)

// planned is a task in line that a claimer may have.
type planned struct {
	id    int64
	order time.Time
	key   string // of the vote; "": it is none
}

// plan is what one claimer may have of a page of the line.
type plan struct {
	ask    *ClaimAsk
	n      int // the most new tasks
	tasks  []planned
	after  place // where the page begins
	last   place // where it ends, if there is more of the line; zero: it has the rest
	ruled  int   // tasks of the page with rules
	looked int   // tasks of the page
}

// planSQL reads a page of a stage's line for each of some claimers: the first tasks that it may
// have, and the page's last row.
const planSQL = `
SELECT c.n, q.id, q.order_time, coalesce(q.key, ''), q.allowed, q.looked, q.ruled
FROM unnest($4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::bigint[])
  WITH ORDINALITY AS c (claimer, subject, labels, after_order, after_id, n), LATERAL (
  SELECT p.*, count(*) OVER () AS looked, count(p.rules) OVER () AS ruled,
    row_number() OVER (ORDER BY p.order_time, p.id) AS nth,
    sum(p.allowed::int) OVER (ORDER BY p.order_time, p.id) AS sum
  FROM (
    SELECT k.id, k.order_time, k.key, k.rules, {votes?} (k.rules IS NULL
      OR coalesce(k.rules -> 'labels', '[]') <@ c.labels::jsonb
      AND NOT EXISTS (SELECT FROM jsonb_array_elements_text(k.rules -> 'exclude') e (x)
        WHERE e.x = c.claimer OR e.x = c.subject OR right(e.x, 1) = '*'
          AND (starts_with(c.claimer, left(e.x, -1))
            OR c.subject <> '' AND starts_with(c.subject, left(e.x, -1))))) AS allowed
    FROM {wait} k
    WHERE k.type = $1 AND k.stage = $2 AND k.until = 'infinity' AND k.reason <> 'flow_key'
      AND k.order_time <= $3 AND (k.order_time, k.id) > (c.after_order, c.after_id)
    ORDER BY k.order_time, k.id LIMIT $9) p) q
WHERE q.allowed AND q.sum <= $10 OR q.nth = q.looked
ORDER BY c.n, q.order_time, q.id`

// notVotedSQL is the condition that a claimer has and holds no vote on a task.
const notVotedSQL = `NOT EXISTS (SELECT FROM {votes} v
      WHERE v.type = $1 AND v.claimer = c.claimer AND v.key = k.key) AND`

// takePlannedSQL takes the first of some tasks, in the order of the list, that nobody else takes.
const takePlannedSQL = `
DELETE FROM {wait} w WHERE ctid = ANY (ARRAY(
  SELECT k.ctid FROM unnest($4::bigint[]) WITH ORDINALITY AS u (id, n), {wait} k
  WHERE k.type = $1 AND k.id BETWEEN u.id AND u.id AND k.stage = $2 AND k.until = 'infinity'
    AND k.reason <> 'flow_key' AND k.order_time <= $3
  ORDER BY u.n
  LIMIT $5
  FOR UPDATE OF k SKIP LOCKED))
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.since, w.order_time),
  coalesce(w.key, ''), w.rules::text`

// readPlans plans for the claimers that may have new tasks.
func (c *claiming) readPlans(ctx context.Context, conn *postgres.TenantConn) error {
	for _, a := range c.asks {
		if left, _ := c.leftInWindow(a); left > 0 {
			c.plans = append(c.plans, &plan{ask: a, n: min(a.N, left),
				after: c.passes.begin(a, c.now)})
		}
	}
	if len(c.plans) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	for _, name := range c.t.NamesOf(c.stage) {
		c.queuePlan(b, name)
	}
	return conn.Send(ctx, b)
}

func (c *claiming) queuePlan(b *pgx.Batch, name string) {
	var claimers, subjects, labels []string
	var orders []time.Time
	var ids []int64
	for _, p := range c.plans {
		claimers = append(claimers, p.ask.Claimer)
		subjects = append(subjects, p.ask.Subject)
		labels = append(labels, p.ask.labelsText())
		orders = append(orders, p.after.order)
		ids = append(ids, p.after.id)
	}
	most := c.most
	if c.window.Picks() {
		most = max(most, c.window.Tasks*c.votesOfATask())
	}
	page := max(pageMin, min(pageRows, pageSum/len(c.plans)))
	if c.passes == nil { // without rules, the first ones are enough
		page = min(page, most)
	}
	voted := ""
	if c.voters {
		voted = notVotedSQL
	}
	sql := c.t.SQL(0, strings.Replace(planSQL, "{votes?}", voted, 1))
	b.Queue(sql, c.t.Number(), name, c.now, claimers, subjects, labels, orders, ids, page,
		most).Query(func(rows pgx.Rows) error {
		return c.scanPlans(rows, page)
	})
}

// votesOfATask returns how many rows of the line may be of one task.
func (c *claiming) votesOfATask() int {
	if c.voters {
		return c.t.Stages[c.t.StageIndex(c.stage)].Quorum.Votes
	}
	return 1
}

func (c *claiming) scanPlans(rows pgx.Rows, page int) error {
	var n, looked, ruled, seen int
	var one planned
	var allowed bool
	lasts := map[int]place{}
	columns := []any{&n, &one.id, &one.order, &one.key, &allowed, &looked, &ruled}
	_, err := pgx.ForEachRow(rows, columns, func() error {
		p := c.plans[n-1]
		if allowed {
			p.tasks = append(p.tasks, one)
		}
		if seen != n { // the first row of the plan
			seen = n
			p.ruled += ruled
			p.looked += looked
		}
		if looked == page {
			lasts[n-1] = place{one.order, one.id} // its last row comes last
		}
		return nil
	})
	for i, last := range lasts {
		if p := c.plans[i]; p.last.isZero() || last.before(p.last) {
			p.last = last
		}
	}
	return err
}

// choosePlanned returns the planned tasks in the order in which they are wanted: each claimer's
// first ones, and then the others, in case somebody else takes the first ones meanwhile.
func (c *claiming) choosePlanned() (ids []int64, sum int) {
	c.wanted = map[int64]int{}
	var spare []int64
	for _, p := range c.plans {
		tasks := p.tasks
		if c.window.Picks() {
			tasks = shuffled(tasks, c.window)
		}
		n := 0
		keys := map[string]bool{}
		for _, one := range tasks {
			if _, known := c.wanted[one.id]; known || keys[one.key] || n >= p.n {
				spare = append(spare, one.id)
				continue
			}
			keys[one.key] = one.key != ""
			c.wanted[one.id] = len(ids)
			ids = append(ids, one.id)
			n++
		}
		sum += p.n
	}
	for _, id := range spare {
		if _, known := c.wanted[id]; !known {
			c.wanted[id] = len(ids)
			ids = append(ids, id)
		}
	}
	return ids, min(sum, c.most)
}

// shuffled returns tasks in a random order: as many as the window has, and only tasks that came in
// line within the window's length after the first one. So no task is overtaken for longer.
func shuffled(tasks []planned, w *asyncflow.Window) []planned {
	n := 0
	keys := map[string]bool{}
	for _, one := range tasks {
		if one.key != "" {
			keys[one.key] = true
		}
		if len(keys) > w.Tasks || len(keys) == 0 && n >= w.Tasks ||
			one.order.After(tasks[0].order.Add(w.Per.Std())) {
			break
		}
		n++
	}
	some := slices.Clone(tasks[:n])
	rand.Shuffle(n, func(i, j int) { some[i], some[j] = some[j], some[i] })
	return some
}

func (c *claiming) queueTakePlanned(b *pgx.Batch) {
	ids, sum := c.choosePlanned()
	if len(ids) == 0 {
		return
	}
	c.queueTaken(b, &c.found, takePlannedSQL, ids, sum)
}

// inPlannedOrder sorts by the order in which tasks are wanted; others, which their claimers were
// shown before, come last.
func (c *claiming) inPlannedOrder(a, b hot.Candidate) int {
	return c.wantedAt(a) - c.wantedAt(b)
}

func (c *claiming) wantedAt(one hot.Candidate) int {
	if at, ok := c.wanted[one.ID.Number]; ok {
		return at
	}
	return len(c.wanted)
}

// plannedHeadSQL reads when the next task of a stage becomes due.
const plannedHeadSQL = `
SELECT order_time FROM {wait}
WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key' AND order_time > $3
ORDER BY order_time, id LIMIT 1`

// queuePlannedHead reads when somebody should look again: now, if somebody else was about to take
// planned tasks.
func (c *claiming) queuePlannedHead(b *pgx.Batch, next *time.Time) {
	if c.outdone() {
		*next = c.now
		return
	}
	for _, name := range c.t.NamesOf(c.stage) {
		b.Queue(c.t.SQL(0, plannedHeadSQL), c.t.Number(), name, c.now).QueryRow(scanHead(next))
	}
}

// outdone reports whether a claimer got none of the tasks of its plan.
func (c *claiming) outdone() bool {
	return slices.ContainsFunc(c.plans, func(p *plan) bool {
		return len(p.tasks) > 0 && len(p.ask.Leases) == 0
	})
}

// endPlans notes, after the transaction, how far the claimers have come, and whether the line has
// tasks with rules. A line that is longer than what a claimer has looked at in vain is gone through
// as if it had some.
func (c *claiming) endPlans(ruled *lines, line catalog.TimesKey) {
	found := slices.ContainsFunc(c.asks, func(a *ClaimAsk) bool { return a.missed })
	if c.passes != nil {
		whole := len(c.plans) > 0 // all plans saw the whole line
		for _, p := range c.plans {
			found = found || p.ruled > 0
			whole = whole && p.after.isZero() && p.last.isZero()
			c.passes.end(p, c.now)
		}
		if whole && !found {
			ruled.note(line, false)
		}
		return
	}
	for _, p := range c.plans {
		vain := len(p.tasks) == 0 && !p.last.isZero()
		found = found || vain || p.ruled > 0
		p.ask.Further = len(p.ask.Leases) == 0 && (vain || p.ruled > 0)
	}
	if found {
		ruled.note(line, true)
	}
}

// labelsText returns the labels as the database compares them: a JSON array of name=value.
func (a *ClaimAsk) labelsText() string {
	doc, err := json.Marshal(a.Labels.Pairs())
	if err != nil {
		panic(err) // texts
	}
	return string(doc)
}
