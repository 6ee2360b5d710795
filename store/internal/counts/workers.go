package counts

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	// MaxWorkers is how many workers a report has at most.
	MaxWorkers = 500
	// workersTime is how far back a report may look.
	workersTime = 24 * time.Hour
	// fewAttempts is how many attempts a worker has at least if it is called failing or slow.
	fewAttempts = 5
	// slowRatio is how many times as long as the others' the attempts of a slow worker take, by
	// their medians.
	slowRatio = 2
	// missedAttempts is how many attempts of its stage a worker must have missed to be gone, by
	// its earlier share. By chance one misses so many once in 20,000 times.
	missedAttempts = 10
)

// WorkerState says how a worker does.
type WorkerState string

// The states of workers, the worst first.
const (
	// WorkerGone: its last attempt was lost, or its stage goes on without it.
	WorkerGone WorkerState = "gone"
	// WorkerFailing: half of its attempts fail.
	WorkerFailing WorkerState = "failing"
	// WorkerSlow: its attempts take twice as long as the others' of its stage.
	WorkerSlow WorkerState = "slow"
	// WorkerWell: nothing of that.
	WorkerWell WorkerState = "well"
)

var workerStates = []WorkerState{WorkerGone, WorkerFailing, WorkerSlow, WorkerWell}

// WorkerFilter says which workers to report.
type WorkerFilter struct {
	Type  string    // "": all types of the tenant
	Since time.Time // attempts that ended at or after this time
	Limit int       // of workers, at most MaxWorkers
}

// WorkerReport has the workers that run tasks now, or ended attempts lately.
type WorkerReport struct {
	Workers []Worker // the worst first, up to the limit
	Count   int      // of all workers
	// Attempts is how many attempts were read. Complete reports whether these are all since the
	// time of the filter, and whether all running tasks were read: otherwise they are a sample.
	Attempts int
	Complete bool
}

// WorkerKey says which worker, and for what it works.
type WorkerKey struct {
	Type, Stage string
	Name        string // that the worker gave; "": all that gave none
	URL         string // of the endpoint; "": it claims its tasks, or it isn't known
	Claimer     string // "": it is pushed
}

// Worker is how a worker does in a stage.
type Worker struct {
	WorkerKey
	State    WorkerState
	Running  int       // tasks that it has now
	Oldest   time.Time // since when it has the oldest of them; zero: none
	Seen     time.Time // when something was last heard of it; zero: never
	Attempts int       // that were read
	Failures int       // of these, also lost ones
	Lost     int       // attempts that ended as their lease ran out
	P50, P95 time.Duration

	lostAt time.Time // of the last one
	took   []float32 // seconds
	anyURL *workerSigns
}

// Workers reports the workers of a type, or of all types of a tenant. It reads the leases and the
// latest rows of the journals, as far as that is cheap: see readWorkers.
func (s *Counts) Workers(
	ctx context.Context, tenant string, f WorkerFilter,
) (WorkerReport, error) {
	now := s.core.Clock.Now()
	switch {
	case !f.Since.Before(now):
		return WorkerReport{}, asyncflow.InvalidField("since", "is not before now")
	// A caller that asks for the whole time asks a moment before it is answered.
	case f.Since.Before(now.Add(-workersTime - time.Minute)):
		return WorkerReport{}, asyncflow.InvalidField("since", "is more than %s ago", workersTime)
	}
	r, err := s.readWorkers(ctx, tenant, f)
	if err != nil {
		return WorkerReport{}, postgres.Wrap(err, "Workers(%q, %q)", tenant, f.Type)
	}
	return r.report(), nil
}

// workerGroups are workers and the attempts of the stages for which they work.
type workerGroups struct {
	filter   WorkerFilter
	types    map[int32]*config.Type
	workers  map[WorkerKey]*Worker
	ends     map[workerStage][]time.Time // of the attempts of a stage
	attempts int
	sampled  bool
	sizeOf   func(relation string) string // an expression, see catalog.Core
	// allRunning is whether all running tasks were read.
	allRunning bool
}

// workerSigns are the signs of life of a worker at all URLs of a stage: an endpoint's may change.
type workerSigns struct {
	seen    time.Time
	running int
}

type workerStage struct{ taskType, stage string }

func (w *Worker) work() workerStage { return workerStage{w.Type, w.Stage} }

// workerOf returns the worker with a key.
func (g *workerGroups) workerOf(key WorkerKey) *Worker {
	w := g.workers[key]
	if w == nil {
		w = &Worker{WorkerKey: key, State: WorkerWell}
		g.workers[key] = w
	}
	return w
}

// addAttempt adds an attempt that ended. A node that is lost takes its deliveries with it: then the
// worker isn't named, and nothing is said of any.
func (g *workerGroups) addAttempt(a workerAttempt) {
	w := g.workerOf(a.key)
	g.attempts++
	w.Attempts++
	if a.outcome == asyncflow.OutcomeLost {
		w.Lost++
		w.lostAt = later(w.lostAt, a.at)
	} else {
		w.Seen = later(w.Seen, a.at)
		g.ends[w.work()] = append(g.ends[w.work()], a.at)
	}
	switch a.outcome {
	case asyncflow.OutcomeDone, asyncflow.OutcomeSnoozed:
	default:
		w.Failures++
	}
	if a.seconds > 0 {
		w.took = append(w.took, a.seconds)
	}
}

// addRunning adds tasks that a worker has now.
func (g *workerGroups) addRunning(r workerRun) {
	w := g.workerOf(r.key)
	w.Running += r.tasks
	if w.Oldest.IsZero() || r.since.Before(w.Oldest) {
		w.Oldest = r.since
	}
	w.Seen = later(w.Seen, r.seen)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// report returns the workers with their states, the worst first.
func (g *workerGroups) report() WorkerReport {
	medians := map[workerStage][]time.Duration{}
	for _, w := range g.workers {
		slices.Sort(w.took)
		w.P50 = percentile(w.took, 50)
		w.P95 = percentile(w.took, 95)
		if w.named() && len(w.took) >= fewAttempts {
			medians[w.work()] = append(medians[w.work()], w.P50)
		}
	}
	for _, all := range medians {
		slices.Sort(all)
	}
	g.joinURLs()
	g.trimEnds()
	all := make([]Worker, 0, len(g.workers))
	for _, w := range g.workers {
		w.State = stateOf(w, g.ends[w.work()], medians[w.work()])
		w.took, w.anyURL = nil, nil
		all = append(all, *w)
	}
	slices.SortFunc(all, compareWorkers)
	return WorkerReport{Workers: all[:min(len(all), g.filter.Limit)], Count: len(all),
		Attempts: g.attempts, Complete: !g.sampled}
}

// joinURLs gives each worker its signs of life at all URLs.
func (g *workerGroups) joinURLs() {
	all := map[WorkerKey]*workerSigns{}
	for _, w := range g.workers {
		key := w.WorkerKey
		key.URL = ""
		if all[key] == nil {
			all[key] = &workerSigns{}
		}
		w.anyURL = all[key]
		w.anyURL.seen = later(w.anyURL.seen, w.Seen)
		w.anyURL.running += w.Running
	}
}

// trimEnds sorts the ends of attempts, and leaves out those after which nobody is known to have
// missed any. A delivery that isn't answered yet has no name: any worker of the stage may be busy
// with it since it began.
func (g *workerGroups) trimEnds() {
	if !g.allRunning {
		clear(g.ends)
		return
	}
	busy := map[workerStage]time.Time{}
	for _, w := range g.workers {
		since, ok := busy[w.work()]
		if !w.named() && w.Running > 0 && (!ok || w.Oldest.Before(since)) {
			busy[w.work()] = w.Oldest
		}
	}
	for stage, ends := range g.ends {
		slices.SortFunc(ends, time.Time.Compare)
		if since, ok := busy[stage]; ok {
			g.ends[stage] = ends[:countUntil(ends, since)]
		}
	}
}

// countUntil returns how many of sorted times aren't after a time.
func countUntil(times []time.Time, t time.Time) int {
	return sort.Search(len(times), func(i int) bool { return times[i].After(t) })
}

// named reports whether it is one worker: nobody knows how many have no name.
func (w *Worker) named() bool { return w.Name != "" || w.Claimer != "" }

// stateOf returns how a worker does. ends are when the attempts of its stage ended, and medians how
// long the attempts of its named workers took, both sorted.
func stateOf(w *Worker, ends []time.Time, medians []time.Duration) WorkerState {
	switch {
	case w.named() && (w.lostAt.After(w.anyURL.seen) || missed(w, ends) >= missedAttempts):
		return WorkerGone
	case w.Attempts >= fewAttempts && 2*w.Failures >= w.Attempts:
		return WorkerFailing
	case w.named() && w.Attempts >= fewAttempts && isSlow(w.P50, medians):
		return WorkerSlow
	}
	return WorkerWell
}

// missed returns how many attempts a worker should have had since it was last heard of, by its
// share of the attempts before. A worker that still has tasks may be busy with them.
func missed(w *Worker, ends []time.Time) float64 {
	answered := w.Attempts - w.Lost
	before := countUntil(ends, w.anyURL.seen)
	if answered < fewAttempts || w.anyURL.running > 0 || before == 0 {
		return 0
	}
	return float64(answered) / float64(before) * float64(len(ends)-before)
}

// isSlow reports whether a median is slow among the medians of a stage, which has its own, too.
func isSlow(median time.Duration, medians []time.Duration) bool {
	if len(medians) < 2 {
		return false
	}
	middle := (len(medians) - 1) / 2 // of the others, the upper one of two, if this one comes later
	if own, _ := slices.BinarySearch(medians, median); own <= middle {
		return false // it is in the faster half
	}
	return median >= slowRatio*medians[middle]
}

// percentile returns one of sorted times by the nearest-rank method; 0 without any.
func percentile(seconds []float32, percent int) time.Duration {
	if len(seconds) == 0 {
		return 0
	}
	rank := (len(seconds)*percent + 99) / 100
	return time.Duration(float64(seconds[rank-1]) * float64(time.Second))
}

// compareWorkers orders workers, the worst first.
func compareWorkers(a, b Worker) int {
	bad := func(w Worker) int { return slices.Index(workerStates, w.State) }
	share := func(w Worker) float64 { return float64(w.Failures) / float64(max(w.Attempts, 1)) }
	return cmp.Or(bad(a)-bad(b), cmp.Compare(b.Lost, a.Lost), cmp.Compare(share(b), share(a)),
		cmp.Compare(a.Type, b.Type), cmp.Compare(a.Stage, b.Stage), cmp.Compare(b.P50, a.P50),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Claimer, b.Claimer), cmp.Compare(a.URL, b.URL))
}
