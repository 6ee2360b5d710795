package asyncflow_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow"
)

// The simulation runs one node and one endpoint with an in-flight bound, and compares rules for the
// circuit breaker. Its tables are in docs/adr/0037-a-worker-that-answers-is-not-down.md.

// rule is a rule for the circuit breaker.
type rule struct {
	name string
	// see returns what the breaker sees of a failed attempt; false: nothing, it counts as a
	// success.
	see func(t *simTask, o asyncflow.Outcome) (asyncflow.TaskID, asyncflow.Outcome, bool)
	// fresh lets tasks that haven't failed go first where FreshFirst says so, else the oldest does.
	fresh bool
}

func seesAll(t *simTask, o asyncflow.Outcome) (asyncflow.TaskID, asyncflow.Outcome, bool) {
	return asyncflow.TaskID{Number: t.id}, o, true
}

func rulesToCompare() []rule {
	nth := int64(0)
	unanswered := asyncflow.Outcome{Kind: asyncflow.OutcomeFailed}
	return []rule{
		{name: "any 10 failures in a row", see: func(*simTask, asyncflow.Outcome) (
			asyncflow.TaskID, asyncflow.Outcome, bool) {
			nth++
			return asyncflow.TaskID{Number: nth}, unanswered, true
		}},
		{name: "10 first attempts in a row", see: func(t *simTask, _ asyncflow.Outcome) (
			asyncflow.TaskID, asyncflow.Outcome, bool) {
			if t.attempt > 1 {
				return asyncflow.TaskID{Number: 0}, unanswered, true
			}
			return asyncflow.TaskID{Number: t.id}, unanswered, true
		}, fresh: true},
		{name: "no answer only", see: func(t *simTask, o asyncflow.Outcome) (
			asyncflow.TaskID, asyncflow.Outcome, bool) {
			return asyncflow.TaskID{Number: t.id}, unanswered,
				o.Status == 0 && o.Failure != asyncflow.FailureConnectionLost
		}, fresh: true},
		{name: "timeouts are no answer", see: func(t *simTask, o asyncflow.Outcome) (
			asyncflow.TaskID, asyncflow.Outcome, bool) {
			if o.Failure == asyncflow.FailureTimeout {
				o = unanswered
			}
			return asyncflow.TaskID{Number: t.id}, o, true
		}, fresh: true},
		{name: "none at all", see: func(*simTask, asyncflow.Outcome) (
			asyncflow.TaskID, asyncflow.Outcome, bool) {
			return asyncflow.TaskID{}, unanswered, false
		}},
		{name: "chosen, oldest tries", see: seesAll},
		{name: "chosen", see: seesAll, fresh: true},
	}
}

// simTask is a task in the simulation. Times are since its begin.
type simTask struct {
	id         int64
	poison     bool
	born, due  time.Duration
	attempt    int
	done, lost time.Duration // when it succeeded or failed for good; 0: it didn't
}

// simWorker returns what an attempt leads to, and how long it takes.
type simWorker func(t *simTask, at time.Duration, r *rand.Rand) (asyncflow.Outcome, time.Duration)

var (
	simFailure = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500}
	simRefused = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed,
		Failure: asyncflow.FailureNoConnection}
	simTimeout = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Failure: asyncflow.FailureTimeout}
	simBusy    = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 503}
	simLost    = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed,
		Failure: asyncflow.FailureConnectionLost}
	simDone = asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}
)

const (
	simStep     = 20 * time.Millisecond
	simTook     = 20 * time.Millisecond // an attempt that is answered
	simSlow     = 5 * time.Second       // the stage's timeout
	simAttempts = 8
	simInFlight = 64
	simEnd      = 10 * time.Minute
)

// between is a worker that gives bad outcomes from 10 s to 130 s, while when holds.
func between(bad asyncflow.Outcome, took time.Duration, when func(time.Duration) bool) simWorker {
	return func(_ *simTask, at time.Duration, _ *rand.Rand) (asyncflow.Outcome, time.Duration) {
		if at >= 10*time.Second && at < 130*time.Second && when(at) {
			return bad, took
		}
		return simDone, simTook
	}
}

func always(time.Duration) bool { return true }

// poisoned is a healthy worker that can't do some tasks.
func poisoned(bad asyncflow.Outcome, took time.Duration) simWorker {
	return func(t *simTask, _ time.Duration, _ *rand.Rand) (asyncflow.Outcome, time.Duration) {
		if t.poison {
			return bad, took
		}
		return simDone, simTook
	}
}

// stream are n good tasks, so many a second.
func stream(n, perSecond int, from time.Duration, poison bool) (tasks []*simTask) {
	for i := range n {
		at := from + time.Duration(i)*time.Second/time.Duration(perSecond)
		tasks = append(tasks, &simTask{born: at, due: at, attempt: 1, poison: poison})
	}
	return tasks
}

// simulation is one run of one rule.
type simulation struct {
	rule
	worker simWorker
	r      *rand.Rand

	health  asyncflow.Health
	run     asyncflow.FailureRun
	waiting []*simTask
	sent    []simAttempt

	failures int // attempts that failed
	opened   int // how often the breaker opened
}

type simAttempt struct {
	*simTask
	sent, ends time.Duration
	asyncflow.Outcome
}

func (s *simulation) timeAfter(d time.Duration) time.Time { return now.Add(d) }

// step ends what ends now, and begins what may begin.
func (s *simulation) step(at time.Duration) {
	still := s.sent[:0]
	for _, a := range s.sent {
		if a.ends > at {
			still = append(still, a)
			continue
		}
		s.conclude(a, at)
	}
	s.sent = still
	for n := s.capacity(at); n > 0; n-- {
		t := s.next(at)
		if t == nil {
			return
		}
		o, took := s.worker(t, at, s.r)
		s.sent = append(s.sent, simAttempt{t, at, at + took, o})
	}
}

func (s *simulation) capacity(at time.Duration) int {
	n := simInFlight - len(s.sent)
	most := s.health.Capacity(s.timeAfter(at))
	if most == asyncflow.Unlimited {
		return n
	}
	since := s.health.CountsSince(s.timeAfter(at))
	for _, a := range s.sent {
		if !s.timeAfter(a.sent).Before(since) {
			most--
		}
	}
	return min(n, most)
}

// next takes the task that is next in turn.
func (s *simulation) next(at time.Duration) *simTask {
	first := -1
	fresh := s.fresh && s.health.FreshFirst(s.timeAfter(at))
	var all, unfailed []int
	for i, t := range s.waiting {
		if t.due > at {
			continue
		}
		if first < 0 || t.due < s.waiting[first].due {
			first = i
		}
		if all = append(all, i); t.attempt == 1 {
			unfailed = append(unfailed, i)
		}
	}
	switch {
	case first < 0:
		return nil
	case fresh && len(unfailed) > 0:
		first = unfailed[s.r.IntN(len(unfailed))]
	case fresh:
		first = all[s.r.IntN(len(all))]
	}
	t := s.waiting[first]
	s.waiting = slices.Delete(s.waiting, first, first+1)
	return t
}

func (s *simulation) conclude(a simAttempt, at time.Duration) {
	task, o, counts := s.see(a.simTask, a.Outcome)
	before := s.health
	switch sent := s.timeAfter(a.sent); {
	case !a.EndpointFailed() || !counts:
		s.run = asyncflow.FailureRun{}
		s.health = s.health.Answered(sent, s.timeAfter(at))
	default:
		s.run.Add(task, o, s.timeAfter(at))
		if s.health.Capacity(s.timeAfter(at)) == 0 {
			s.run = asyncflow.FailureRun{}
		}
		s.health = s.health.Failed(o, s.run, sent, s.timeAfter(at))
	}
	if before != s.health && s.health.State == asyncflow.HealthOpen {
		s.opened++
	}
	switch t := a.simTask; {
	case a.Kind == asyncflow.OutcomeDone:
		t.done = at
	case t.attempt == simAttempts:
		s.failures++
		t.lost = at
	default:
		s.failures++
		t.due = at + min(time.Second<<(t.attempt-1), time.Minute)
		t.attempt++
		s.waiting = append(s.waiting, t)
	}
}

// simResult is what a rule led to.
type simResult struct {
	failures, lost, opened int
	waited                 time.Duration // the longest of a good task, from when it could be done
}

// simulate runs until the end of all good tasks. The worker is well from a time on.
func simulate(rule rule, worker simWorker, well time.Duration, tasks []*simTask) (r simResult) {
	s := &simulation{rule: rule, worker: worker, r: rand.New(rand.NewPCG(1, 2))}
	for i, t := range tasks {
		t.id = int64(i + 1)
	}
	slices.SortFunc(tasks, func(a, b *simTask) int { return cmp.Compare(a.born, b.born) })
	s.waiting = slices.Clone(tasks)
	open := func(t *simTask) bool { return !t.poison && t.done == 0 && t.lost == 0 }
	for at := time.Duration(0); at < simEnd && slices.ContainsFunc(tasks, open); at += simStep {
		s.step(at)
	}
	r = simResult{failures: s.failures, opened: s.opened}
	for _, t := range tasks {
		switch {
		case t.poison:
		case t.lost > 0:
			r.lost++
		default:
			r.waited = max(r.waited, cmp.Or(t.done, simEnd)-max(t.born, well))
		}
	}
	return r
}

// scenario is a worker with its tasks.
type scenario struct {
	name   string
	worker simWorker
	well   time.Duration // from when on the worker can do good tasks
	tasks  func() []*simTask
}

func scenarios() []scenario {
	steady := func() []*simTask { return stream(3000, 20, 0, false) }
	beside := func() []*simTask {
		return slices.Concat(stream(100, 1e6, 0, true), stream(20, 1e6, time.Millisecond, false),
			stream(20, 1e6, time.Minute, false))
	}
	beside20 := func() []*simTask {
		return slices.Concat(stream(20, 1e6, 0, true), stream(20, 1e6, time.Millisecond, false),
			stream(20, 1e6, time.Minute, false))
	}
	redriven := func() []*simTask {
		return slices.Concat(stream(348, 30, 0, true), stream(20, 1e6, 5*time.Second, false),
			stream(20, 1e6, time.Minute, false))
	}
	const end = 130 * time.Second
	half := func(_ *simTask, _ time.Duration, r *rand.Rand) (asyncflow.Outcome, time.Duration) {
		if r.IntN(2) == 0 {
			return simRefused, simTook
		}
		return simDone, simTook
	}
	flaps := func(at time.Duration) bool { return at/(15*time.Second)%2 == 1 }
	return []scenario{
		{"dead for 2 min", between(simRefused, simTook, always), end, steady},
		{"too slow for 2 min", between(simTimeout, simSlow, always), end, steady},
		{"500 to all for 2 min", between(simFailure, simTook, always), end, steady},
		{"flapping, 15 s each", between(simRefused, simTook, flaps), end, steady},
		{"half-dead", half, 0, steady},
		{"100 poison: 500", poisoned(simFailure, simTook), 0, beside},
		{"100 poison: it breaks off", poisoned(simLost, simTook), 0, beside},
		{"100 poison: 503", poisoned(simBusy, simTook), 0, beside},
		{"20 poison: 503", poisoned(simBusy, simTook), 0, beside20},
		{"100 poison in a stream: 503", poisoned(simBusy, simTook), 0, func() []*simTask {
			return slices.Concat(stream(100, 1e6, 10*time.Second, true), steady())
		}},
		{"503 to all for 2 min", between(simBusy, simTook, always), end, steady},
		{"100 poison: it hangs", poisoned(simTimeout, simSlow), 0, beside},
		{"20 poison: it hangs", poisoned(simTimeout, simSlow), 0, beside20},
		{"20 poison: it hangs for 30 s", poisoned(simTimeout, 30*time.Second), 0, beside20},
		{"100 poison in a stream: it hangs", poisoned(simTimeout, simSlow), 0, func() []*simTask {
			return slices.Concat(stream(100, 1e6, 10*time.Second, true), steady())
		}},
		{"348 redriven at 30/s: it hangs", poisoned(simTimeout, simSlow), 0, redriven},
		{"348 redriven at 30/s: 500", poisoned(simFailure, simTook), 0, redriven},
	}
}

// The chosen rule spares workers that are down, and lets no good task wait for poisoned ones for
// long. The other rules are simulated for the table only, which go test -v shows.
func TestSimulatedBreakers(t *testing.T) {
	t.Parallel()
	rules := rulesToCompare()
	if !testing.Verbose() {
		rules = rules[len(rules)-1:]
	}
	chosen := map[string]simResult{}
	var table strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&table,
			"\n| %s | Longest wait | Failed for good | Failed attempts | Opened |\n"+
				"|---|---|---|---|---|\n", s.name)
		for _, rule := range rules {
			r := simulate(rule, s.worker, s.well, s.tasks())
			chosen[s.name] = r // it is the last one
			fmt.Fprintf(&table, "| %s | %.1f s | %d | %d | %d |\n", rule.name, r.waited.Seconds(),
				r.lost, r.failures, r.opened)
		}
	}
	t.Log(table.String())
	assert.Less(t, chosen["dead for 2 min"].failures, 20)
	assert.Less(t, chosen["500 to all for 2 min"].failures, 1000)
	assert.Less(t, chosen["too slow for 2 min"].failures, 300)
	for _, name := range []string{"100 poison: 500", "100 poison: it breaks off",
		"20 poison: it hangs", "20 poison: it hangs for 30 s", "348 redriven at 30/s: 500"} {
		assert.Less(t, chosen[name].waited, 5*time.Second, name)
	}
	// While only poison is left, the pause doubles.
	for _, name := range []string{"100 poison: 503", "20 poison: 503",
		"100 poison in a stream: 503"} {
		assert.Less(t, chosen[name].waited, 30*time.Second, name)
	}
	assert.Less(t, chosen["348 redriven at 30/s: it hangs"].waited, 40*time.Second)
	assert.Less(t, chosen["half-dead"].waited, 200*time.Second)
	assert.Less(t, chosen["503 to all for 2 min"].failures, 20)
	// At first, tasks that hang take all slots.
	for _, name := range []string{"100 poison: it hangs", "100 poison in a stream: it hangs"} {
		assert.Less(t, chosen[name].waited, simSlow+time.Second, name)
	}
	for name, r := range chosen {
		if name != "half-dead" { // one in 2⁸ fails each time
			assert.Zero(t, r.lost, name)
		}
	}
}
