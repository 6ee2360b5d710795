package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// check compares the database with the models after a step. FollowUp may
// move tasks on, if there is a reason for it: then the model does so too.
func (m *joinMachine) check(t *rapid.T) {
	require.Empty(t, m.b.wrongEnds())
	m.seen = m.look()
	m.lookAtRedrives()
	for _, g := range m.groups {
		g.failed = g.tooMany()
	}
	m.born()
	require.Len(t, m.seen.tasks, len(m.order))
	m.replay()
	for _, s := range m.seen.tasks {
		m.same(m.byName[s.id.String()], s)
	}
	m.checkGroups()
}

// lookAtRedrives reads how many failed children FollowUp is still to redrive.
func (m *joinMachine) lookAtRedrives() {
	names := map[int32]string{}
	for _, name := range m.types {
		names[m.kind(name).Number()] = name
	}
	m.redriving = map[familyKey]int{}
	rows, err := m.b.db.Query(m.b.t.Context(), `SELECT type, id, seq, coalesce(to_redrive, 0)
		FROM tenant_acme.fan_outs WHERE again IS NOT NULL`)
	require.NoError(m.t, err)
	var number int32
	var k familyKey
	var n int
	_, err = pgx.ForEachRow(rows, []any{&number, &k.parent.Number, &k.seq, &n}, func() error {
		k.parent.Type = names[number]
		m.redriving[k] = n
		return nil
	})
	require.NoError(m.t, err)
}

// born notes new tasks: each is one of a list that wasn't made yet.
func (m *joinMachine) born() {
	for _, s := range m.seen.tasks {
		if m.byName[s.id.String()] != nil {
			continue
		}
		g, index, count := m.groupOf(s)
		require.NotNil(m.t, g, "%s is of no list", s.id)
		require.Nil(m.t, g.children[index], "%s was made twice", s.id)
		require.Equal(m.t, len(g.list), count)
		one := g.list[index]
		require.Equal(m.t, []string{one.Type, string(one.Context)},
			[]string{s.id.Type, s.context}, s.id)
		w := &joinTask{id: s.id, contexts: [2]string{s.context}, depth: g.parent.depth, part: g}
		if !g.items {
			w.depth++
		}
		g.children[index] = w
		m.add(w)
	}
}

// groupOf returns the group of a new task, its index there, and of how many it says it is one.
func (m *joinMachine) groupOf(s taskSeen) (g *joinGroup, index, count int) {
	if c := s.child; c != nil {
		parent := asyncflow.TaskID{Type: s.id.Type, Number: c.Parent}
		return m.groups[familyKey{parent, c.Seq}], c.Index, c.Count
	}
	by := m.b.task(s.id).Options.Spawned
	require.NotNil(m.t, by, "%s is none of ours", s.id)
	require.NotNil(m.t, by.Part, "%s is none of ours", s.id)
	parent := m.byName[by.Parent]
	require.NotNil(m.t, parent, "%s has no parent", s.id)
	return m.groups[familyKey{parent.id, by.Part.Seq}], by.Part.Index, by.Part.Count
}

// replay notes what new rows of journals say. A row waits where its reason may be in another
// journal.
func (m *joinMachine) replay() {
	left := map[*joinTask][]store.Attempt{}
	for _, s := range m.seen.tasks {
		w, last := m.byName[s.id.String()], s.lastSeq
		known := w.seq - 1
		if w.status.Final() {
			known = w.seq
		}
		require.GreaterOrEqual(m.t, last, known, "the journal of %s", w.id)
		if last > known {
			rows, err := m.b.Attempts(m.b.t.Context(), tenant, w.id)
			require.NoError(m.t, err)
			require.Len(m.t, rows, last, "the journal of %s has a gap", w.id)
			left[w] = rows[known:]
		}
	}
	for len(left) > 0 {
		moved := false
		for _, w := range m.order {
			for len(left[w]) > 0 && m.follows(w, left[w][0]) {
				left[w] = left[w][1:]
				moved = true
			}
			if len(left[w]) == 0 {
				delete(left, w)
			}
		}
		for w, rows := range left {
			require.True(m.t, moved, "%s is %s %s, and no reason is known for %s %s", w.id,
				w.status, w.reason, rows[0].Outcome, rows[0].Final)
		}
	}
}

// follows notes what a row says that FollowUp wrote, or a node that leased a task, if there is a
// reason for it.
func (m *joinMachine) follows(w *joinTask, row store.Attempt) bool {
	switch {
	case row.Outcome == asyncflow.OutcomeJoined:
		return m.joined(w, row)
	case row.Outcome == asyncflow.OutcomeCancelled && !w.status.Final() && w.halted():
		w.end(asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled})
		return true
	case row.Outcome == asyncflow.OutcomeChanged && !w.status.Final() &&
		w.status != asyncflow.StatusRunning && w.changedAbove():
		w.change()
		return true
	case row.Outcome == asyncflow.OutcomeRedriven && w.redrivable() && w.part != nil &&
		w.part.again:
		w.redrive(w.stage, false)
		return true
	}
	return false
}

// changedAbove reports whether a task above got another priority.
func (w *joinTask) changedAbove() bool {
	return slices.ContainsFunc(w.above(), func(g *joinGroup) bool { return g.parent.changed })
}

// joined notes that a task goes on, or fails, once all tasks of its list are final.
func (m *joinMachine) joined(w *joinTask, row store.Attempt) bool {
	g := w.own
	if g == nil || !g.waitedFor() || g.count()[""] > 0 {
		return false
	}
	w.seq++
	w.left = leftover{}
	g.again, g.paused = false, false
	if row.Final == asyncflow.StatusFailed || row.Error != "" {
		require.True(m.t, g.tooMany(), "%s failed for no reason", w.id)
		w.fail()
		return true
	}
	require.False(m.t, g.tooMany(), "%s goes on, though too many have failed", w.id)
	require.Len(m.t, g.children, len(g.list), "%s goes on, and has tasks to make", w.id)
	results := m.results(g)
	require.Equal(m.t, results, string(row.Output), w.id)
	w.pass(results, g.finish)
	return true
}

// results is what a task goes on with.
func (m *joinMachine) results(g *joinGroup) string {
	n := g.count()
	all := make([]string, len(g.list))
	for i := range g.list {
		c := g.children[i]
		output := ""
		if c.status == asyncflow.StatusSucceeded {
			output = c.output
		}
		all[i] = output
		if output == "" {
			all[i] = "null"
		}
		if g.join.Results != asyncflow.ResultsSettled {
			continue
		}
		all[i] = fmt.Sprintf(`{"index":%d,"status":"%s","id":"%s"`, i, c.status, c.id)
		if output != "" {
			all[i] += `,"output":` + output
		}
		if text := m.b.task(c.id).Error; text != "" {
			doc, err := json.Marshal(text)
			require.NoError(m.t, err)
			all[i] += `,"error":` + string(doc)
		}
		all[i] += "}"
	}
	return fmt.Sprintf(`{"count":%d,"succeeded":%d,"failed":%d,"cancelled":%d,"results":[%s]}`,
		len(g.list), n[asyncflow.StatusSucceeded], n[asyncflow.StatusFailed],
		n[asyncflow.StatusCancelled], strings.Join(all, ","))
}

// same compares a task with its model. A task in line may be parked below a task that is paused,
// and is in line again after that.
func (m *joinMachine) same(w *joinTask, s taskSeen) {
	require.Equal(m.t, s.lastSeq, s.rows, "%s: its journal has a gap", w.id)
	if w.status.Final() {
		require.Equal(m.t, []any{0, w.status, w.seq}, []any{s.tokens, s.final, s.lastSeq}, w.id)
		return
	}
	parked := s.status == asyncflow.StatusWaiting && s.reason == asyncflow.WaitParent
	switch {
	case parked && w.status == asyncflow.StatusPending:
		require.True(m.t, w.paused() || w.halted(), "%s is parked for no reason", w.id)
		w.status, w.reason = asyncflow.StatusWaiting, asyncflow.WaitParent
	case w.reason == asyncflow.WaitParent && s.status == asyncflow.StatusPending:
		w.status, w.reason = asyncflow.StatusPending, ""
	}
	require.Equal(m.t, []any{1, w.status, w.reason, w.seq, w.stage, w.attempt},
		[]any{s.tokens, s.status, s.reason, s.seq, m.kind(w.id.Type).StageIndex(s.stage),
			s.attempt}, w.id)
}

// checkGroups compares what is counted of tasks for which others wait, and still to be, with these.
func (m *joinMachine) checkGroups() {
	require.Len(m.t, m.seen.families, len(m.groups))
	for key, g := range m.groups {
		s, n := m.seen.families[key], g.count()
		require.NotNil(m.t, s)
		require.Equal(m.t, []int{len(g.children), n[asyncflow.StatusSucceeded],
			n[asyncflow.StatusFailed], n[asyncflow.StatusCancelled]}, []int{s.spawned,
			s.succeeded + s.toCome[0], s.failed + s.toCome[1], s.cancelled + s.toCome[2]}, "%v",
			key)
		require.False(m.t, s.closed && g.waitedFor(), "%v is closed, and waited for", key)
		if most := g.join.MaxParallel; most > 0 {
			require.LessOrEqual(m.t, n[""], most+g.extra, "tasks of %v in parallel", key)
		}
	}
}

// quiet follows up until nothing is left to do. Then each task waits for a reason.
func (m *joinMachine) quiet(t *rapid.T) {
	for until := time.Now().Add(patience); ; {
		m.b.exec(`UPDATE tenant_acme.outbox SET due = now() WHERE due > now()
			AND seq = ANY (ARRAY(SELECT seq FROM tenant_acme.outbox FOR UPDATE SKIP LOCKED))`)
		more, err := m.b.FollowUpRows(m.b.t.Context(), tenant, 200)
		require.NoError(t, err)
		m.check(t)
		if !more && m.b.count(`SELECT count(*) FROM tenant_acme.outbox`) == 0 {
			break
		}
		require.True(t, time.Now().Before(until), "follow-ups don't end")
	}
	for _, w := range m.order {
		require.True(t, w.reason != asyncflow.WaitParent || w.paused(), "%s stays parked", w.id)
	}
	for key, g := range m.groups {
		m.checkQuiet(key, g)
	}
}

// checkQuiet asserts that nothing is left to do for a group but by its tasks.
func (m *joinMachine) checkQuiet(key familyKey, g *joinGroup) {
	n, s := g.count(), m.seen.families[key]
	if !g.waitedFor() {
		require.Zero(m.t, n[""], "%v has live tasks, for whom nobody waits", key)
		require.True(m.t, s.closed, "%v isn't closed", key)
		return
	}
	_, again := m.redriving[key]
	left := again || len(g.children) < len(g.list)
	full := g.join.MaxParallel > 0 && n[""] >= g.join.MaxParallel
	require.True(m.t, again || !g.tooMany(), "%v waits on, though too many have failed", key)
	require.True(m.t, n[""] > 0 || left && g.paused, "%v hangs", key)
	require.True(m.t, !left || full || g.paused, "%v has tasks to make", key)
	children := m.b.task(g.parent.id).Children
	want := asyncflow.Children{Total: len(g.list), Waiting: len(g.list) - len(g.children),
		Succeeded: n[asyncflow.StatusSucceeded], Failed: n[asyncflow.StatusFailed],
		Cancelled: n[asyncflow.StatusCancelled]}
	for _, c := range g.children {
		switch c.status {
		case asyncflow.StatusPending:
			want.Pending++
		case asyncflow.StatusRunning:
			want.Running++
		case asyncflow.StatusWaiting:
			want.Waiting++
		}
	}
	require.Equal(m.t, &want, children, "%v", key)
}
