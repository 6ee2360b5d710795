package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// databaseLosses are ways to lose the primary under load. Each returns the URL of the server that
// takes its place. With forgets, that server may lack what was acknowledged since the mark.
var databaseLosses = []struct {
	name    string
	short   bool // also in the short form
	forgets bool
	lose    func(*failover) (next string)
}{
	{"killed", true, false, func(f *failover) string {
		require.NoError(f, f.primary.Kill())
		return f.promote(f.standby)
	}},
	{"stopped", false, false, func(f *failover) string {
		f.freeze(f.primary.PID())
		f.awaitUnready()
		return f.promote(f.standby)
	}},
	{"unreachable", false, false, func(f *failover) string { // its host is gone: no packet arrives
		f.network.Silence()
		defer f.network.Heal()
		f.awaitUnready()
		next := f.promote(f.standby)
		f.network.Lead(next)
		return next
	}},
	{"unnoticed", false, false, func(f *failover) string { // promoted before a node notices
		f.network.Silence()
		defer f.network.Heal()
		next := f.promote(f.standby)
		f.network.Lead(next)
		return next
	}},
	{lostHost, true, false, func(f *failover) string { // no packet arrives; clients know both hosts
		f.hosts[0].Lose()
		return f.promote(f.standby)
	}},
	{"stale standby", false, true, func(f *failover) string {
		f.mark()
		require.NoError(f, f.standby.Stop(f.Context())) // it gets nothing from now on
		f.awaitMore(50)
		require.NoError(f, f.primary.Kill())
		return f.promote(pgtest.Server(f.T, f.standby.Config()))
	}},
	{"restored", true, true, func(f *failover) string {
		f.mark()
		backup := pgtest.Backup(f.T, f.primary)
		f.awaitMore(50)
		require.NoError(f, f.primary.Kill())
		restored := pgtest.Restore(f.T, backup, f.primary)
		awaitPrimary(f.T, restored.URL("postgres"))
		return restored.URL("postgres")
	}},
}

// lostHost is the loss of a network namespace.
const lostHost = "lost host"

// The primary is lost under load, and another server takes its place: two nodes go on with keyed
// submits, trees, votes and signals. No acknowledged task is lost if the standby was synchronous;
// otherwise none that is on the other server. No id names two tasks.
func TestFailover(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	sums := map[string]*failoverSum{}
	for round := range longform.Size(1, 10) {
		for _, loss := range databaseLosses {
			if !loss.short && !longform.Asked() {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", loss.name, round+1), func(t *testing.T) {
				if !longform.Asked() {
					t.Parallel()
				}
				f := startFailover(t, !loss.forgets, loss.name == lostHost)
				f.load()
				f.awaitMore(100)
				begun := time.Now()
				next := loss.lose(f)
				promoted := time.Now()
				if f.network != nil {
					f.network.Lead(next)
				}
				after := f.awaitDeliveries(begun, promoted)
				f.awaitMore(100)
				f.stop()
				lost, doubles := f.check(loss.forgets)
				if longform.Asked() { // one round after the other
					sums[loss.name] = sums[loss.name].with(after, lost, doubles)
				}
			})
		}
	}
	for _, loss := range databaseLosses {
		if sum := sums[loss.name]; sum != nil {
			assert.Less(t, sum.log(t, loss.name), promisedFailover, loss.name)
		}
	}
}

// promisedFailover bounds the median, over the rounds of a way, of the time from the promotion
// until deliveries go on. A machine that others use as well is late in some rounds; a node that
// waited for deadlines would be so in most.
const promisedFailover = time.Second

// failoverSum is the sum of the rounds of a way to lose the primary.
type failoverSum struct {
	after   []time.Duration // from the promotion to the next delivery
	lost    int             // tasks that the next server didn't know of
	doubles map[string]int  // deliveries that came twice, by cause
	double  int             // rounds that had some
}

// with adds a round. The sum may be nil.
func (s *failoverSum) with(
	after time.Duration, lost int, doubles map[string]int,
) *failoverSum {
	if s == nil {
		s = &failoverSum{doubles: map[string]int{}}
	}
	s.after = append(s.after, after)
	s.lost += lost
	if len(doubles) > 0 {
		s.double++
	}
	for cause, n := range doubles {
		s.doubles[cause] += n
	}
	return s
}

// log logs the sum, and returns the median of the times.
func (s *failoverSum) log(t *testing.T, way string) (median time.Duration) {
	t.Helper()
	slices.Sort(s.after)
	median = s.after[(len(s.after)-1)/2]
	t.Logf("%s: deliveries %v to %v after the promotion, half of them within %v; in %d of %d "+
		"rounds doubled deliveries, by cause: %v; %d tasks forgotten", way,
		s.after[0].Round(time.Millisecond), s.after[len(s.after)-1].Round(time.Millisecond),
		median.Round(time.Millisecond), s.double, len(s.after), s.doubles, s.lost)
	return median
}

// failover is a primary and a standby, two nodes at an address that can move, and a ledger.
type failover struct {
	*testing.T
	primary, standby *devpg.Server
	network          *pgtest.Network // nil: there are hosts
	hosts            []*pgtest.Host  // of the primary and the standby
	nodes            []*client.Client
	stop             func() // ends the load, and waits for its last answers

	mu         sync.Mutex
	acked      map[string]string // the ids of acknowledged tasks, by key
	keys       map[string]string // and their keys by id
	twice      []string          // ids that were given to two keys
	marked     map[string]bool   // keys that were acknowledged before the mark
	deliveries map[string]int    // by task and stage
	last       time.Time         // of the last delivery
	more       chan struct{}     // something was acknowledged
}

func startFailover(t *testing.T, synchronous, hosts bool) *failover {
	t.Helper()
	f := &failover{T: t, primary: pgtest.PreparedServer(t, prepareDatabase),
		acked: map[string]string{}, keys: map[string]string{}, marked: map[string]bool{},
		deliveries: map[string]int{}, more: make(chan struct{}, 1)}
	f.standby = pgtest.Standby(t, f.primary)
	if synchronous {
		f.awaitStandby()
	}
	url := f.connect(hosts)
	for range 2 {
		c, err := client.New(startNode(t, url).url, testToken(t))
		require.NoError(t, err)
		f.nodes = append(f.nodes, c)
	}
	f.putTypes()
	return f
}

// connect returns the URL of the database for nodes: an address that can move, or both hosts.
func (f *failover) connect(hosts bool) (to string) {
	f.Helper()
	if !hosts {
		f.network, to = pgtest.Behind(f.T, f.primary.URL("postgres"))
		return to
	}
	u, err := url.Parse(f.primary.URL("postgres"))
	require.NoError(f, err)
	var addresses []string
	for _, server := range []*devpg.Server{f.primary, f.standby} {
		host, address := pgtest.NewHost(f.T, server.URL("postgres"))
		f.hosts = append(f.hosts, host)
		addresses = append(addresses, address)
	}
	u.Host = strings.Join(addresses, ",")
	query := u.Query()
	query.Set("target_session_attrs", "read-write")
	u.RawQuery = query.Encode()
	return u.String()
}

// awaitStandby makes commits wait for the standby.
func (f *failover) awaitStandby() {
	f.Helper()
	db, err := pgx.Connect(f.Context(), f.primary.URL("postgres"))
	require.NoError(f, err)
	defer db.Close(context.WithoutCancel(f.Context()))
	for _, sql := range []string{
		`ALTER SYSTEM SET synchronous_standby_names = '` + pgtest.StandbyName + `'`,
		`SELECT pg_reload_conf()`} {
		_, err := db.Exec(f.Context(), sql)
		require.NoError(f, err)
	}
	require.Eventually(f, func() bool {
		var n int
		err := db.QueryRow(f.Context(), `SELECT count(*) FROM pg_stat_replication
			WHERE sync_state = 'sync'`).Scan(&n)
		return err == nil && n == 1
	}, patience, 20*time.Millisecond, "the standby is synchronous")
}

// promote makes a standby the primary, and returns its URL.
func (f *failover) promote(standby *devpg.Server) string {
	f.Helper()
	url := standby.URL("postgres")
	db, err := pgx.Connect(f.Context(), url)
	require.NoError(f, err)
	defer db.Close(context.WithoutCancel(f.Context()))
	_, err = db.Exec(f.Context(), `SELECT pg_promote()`)
	require.NoError(f, err)
	awaitPrimary(f.T, url)
	return url
}

// awaitUnready waits until the nodes notice that the database is silent, as a failover also takes
// some seconds to notice.
func (f *failover) awaitUnready() {
	f.Helper()
	for _, c := range f.nodes {
		require.Eventually(f, func() bool {
			_, err := c.Ready(f.Context())
			return err != nil
		}, patience, 20*time.Millisecond, "the node isn't ready")
	}
}

// freeze stops a server with its processes, until the end of the test.
func (f *failover) freeze(pid int) {
	f.Helper()
	all := []int{pid}
	f.Cleanup(func() {
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	require.NoError(f, syscall.Kill(pid, syscall.SIGSTOP)) // it starts no further process then
	awaitStopped(f.T, pid)
	all = append(all, children(f.T, pid)...)
	for _, child := range all[1:] {
		_ = syscall.Kill(child, syscall.SIGSTOP) // perhaps it ended
		awaitStopped(f.T, child)
	}
}

// failoverKinds are the types of the load.
var failoverKinds = []string{"plain", "tree", "voted", "signalled"}

func (f *failover) putTypes() {
	f.Helper()
	w := startWorker(f.T, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		f.mu.Lock()
		f.deliveries[d.ID+" "+d.Stage]++
		f.last = time.Now()
		f.mu.Unlock()
		answer(rw, 200, map[string]any{"output": map[string]string{"label": "cat"}})
	})
	stage := func(name string) client.Stage {
		return client.Stage{Name: name, Timeout: client.NewDuration(time.Second),
			Retry: client.RetryPolicy{MaxAttempts: 100, Interval: client.Seconds(-0.1)}}
	}
	mapped, judged := stage("map"), stage("judge")
	mapped.FanOut = &asyncflow.FanOut{Items: "/items"}
	judged.Quorum = &asyncflow.Quorum{Votes: 2, MaxVotes: 3, AgreeOn: "/label"}
	waits := client.Stage{Name: "wait", Mode: asyncflow.ModeWait,
		Wait: &asyncflow.Wait{Signal: "approved", Timeout: client.NewDuration(time.Hour)}}
	for name, stages := range map[string][]client.Stage{
		"plain": {stage("do")}, "tree": {mapped, stage("reduce")}, "voted": {judged, stage("end")},
		"signalled": {waits, stage("end")},
	} {
		_, err := f.nodes[0].PutTaskType(f.Context(), name, client.TaskTypeSpec{Stages: stages})
		require.NoError(f, err)
		for _, s := range stages {
			if s.Wait != nil {
				continue
			}
			_, err := f.nodes[0].CreateEndpoint(f.Context(), client.NewEndpoint{Type: name,
				Stage: s.Name, URL: w.URL, Secret: testWebhook})
			require.NoError(f, err)
		}
	}
}

// failoverPace is the least time between two tasks of one kind at one node.
const failoverPace = 10 * time.Millisecond

// load submits tasks of each kind at each node, until stop.
func (f *failover) load() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	var running sync.WaitGroup
	for n, c := range f.nodes {
		for _, kind := range failoverKinds {
			running.Go(func() {
				pace := time.NewTicker(failoverPace)
				defer pace.Stop()
				for i := 0; ctx.Err() == nil; i++ {
					f.submit(c, kind, fmt.Sprintf("%s-%d-%d", kind, n, i))
					<-pace.C
				}
			})
		}
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	f.Cleanup(f.stop)
}

// submit submits a task with a key, and again until it is acknowledged; and so its signal.
func (f *failover) submit(c *client.Client, kind, key string) {
	task := client.NewTask{Type: kind, Key: key, Context: failoverContext(key)}
	var id string
	f.insist(func(ctx context.Context) error {
		submitted, err := c.Submit(ctx, task)
		id = submitted.ID
		return err
	})
	if kind == "signalled" {
		f.signal(c, key)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if other, ok := f.keys[id]; ok && other != key {
		f.twice = append(f.twice, fmt.Sprintf("%s: %s and %s", id, other, key))
	}
	f.acked[key], f.keys[id] = id, key
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// signal sends the signal of a task; of several with one key, one counts.
func (f *failover) signal(c *client.Client, key string) {
	f.insist(func(ctx context.Context) error {
		_, err := c.SendSignal(ctx,
			client.NewSignal{Name: "approved", Type: "signalled", Key: key}, key)
		return err
	})
}

func failoverContext(key string) client.JSON {
	return fmt.Appendf(nil, `{"key":%q,"items":[1,2,3]}`, key)
}

// insist repeats a call that failed because of the database.
func (f *failover) insist(call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.Context()), patience)
	defer cancel()
	for {
		err := call(ctx)
		if err == nil {
			return
		}
		again := []asyncflow.Code{asyncflow.CodeUnavailable, asyncflow.CodeUncertain}
		if !slices.Contains(again, asyncflow.CodeOf(err)) || ctx.Err() != nil {
			assert.NoError(f, err)
			return
		}
	}
}

// awaitMore waits until n more tasks are acknowledged.
func (f *failover) awaitMore(n int) {
	f.Helper()
	end := time.After(patience)
	for want := f.count() + n; f.count() < want; {
		select {
		case <-f.more:
		case <-end:
			f.Fatalf("%d tasks of %d are acknowledged", f.count(), want)
		}
	}
}

func (f *failover) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.acked)
}

// mark notes what is acknowledged, once it is on the standby.
func (f *failover) mark() {
	f.Helper()
	f.mu.Lock()
	for key := range f.acked {
		f.marked[key] = true
	}
	f.mu.Unlock()
	db, err := pgx.Connect(f.Context(), f.primary.URL("postgres"))
	require.NoError(f, err)
	defer db.Close(context.WithoutCancel(f.Context()))
	var at string
	require.NoError(f, db.QueryRow(f.Context(), `SELECT pg_current_wal_insert_lsn()`).Scan(&at))
	require.Eventually(f, func() bool {
		var has bool
		err := db.QueryRow(f.Context(), `SELECT count(*) = 1 FROM pg_stat_replication
			WHERE replay_lsn >= $1::text::pg_lsn`, at).Scan(&has)
		return err == nil && has
	}, patience, 20*time.Millisecond, "the standby has it")
}

// slowestFailover bounds the time from a promotion until deliveries go on in each round, also on a
// busy machine. It is less than a second on others: see promisedFailover.
const slowestFailover = time.Minute

// awaitDeliveries waits for the first delivery after a promotion, and returns how long it took.
func (f *failover) awaitDeliveries(begun, promoted time.Time) time.Duration {
	f.Helper()
	var first time.Time
	require.Eventually(f, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		first = f.last
		return first.After(promoted)
	}, patience, 5*time.Millisecond, "deliveries go on")
	f.Logf("deliveries %v after the promotion, %v after the loss began",
		first.Sub(promoted).Round(time.Millisecond), first.Sub(begun).Round(time.Millisecond))
	assert.Less(f, first.Sub(promoted), slowestFailover)
	return first.Sub(promoted)
}

// check checks the ledger: all acknowledged tasks end, with their contexts, and as one task each.
// It returns how many the next server didn't know, and the doubled deliveries by cause.
func (f *failover) check(forgets bool) (lost int, doubles map[string]int) {
	f.Helper()
	assert.Empty(f, f.twice, "an id names two tasks")
	doubles = map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(f.acked)) {
		id := f.acked[key]
		if forgets && !f.marked[key] && strings.HasPrefix(key, "signalled") {
			f.signal(f.nodes[0], key) // the task may be there without its signal
		}
		task, err := f.nodes[0].Wait(f.Context(), id, patience)
		if asyncflow.CodeOf(err) == asyncflow.CodeNotFound && forgets && !f.marked[key] {
			lost++
			continue
		}
		require.NoError(f, err, "%s, %s", key, id)
		require.Equal(f, client.StatusSucceeded, task.Status, "%s: %+v", key, task)
		assert.True(f, bytes.Equal(failoverContext(key), task.Context), "%s: %s", key, task.Context)
	}
	for _, work := range slices.Sorted(maps.Keys(f.deliveries)) {
		if n := f.deliveries[work]; n > 1 {
			f.addDoubles(doubles, work, n)
		}
	}
	f.Logf("%d tasks, %d lost, doubled deliveries by cause: %v", len(f.acked), lost, doubles)
	if !forgets {
		assert.Zero(f, lost)
	}
	return lost, doubles
}

// addDoubles adds the deliveries of a task, a child or a vote in a stage beyond the first one, by
// their causes. There is no attempt in the database for a delivery that ended while it was lost;
// without forgetting, that is one whose end could not be written.
func (f *failover) addDoubles(doubles map[string]int, work string, n int) {
	f.Helper()
	id, stage, _ := strings.Cut(work, " ")
	attempts, err := f.nodes[0].Attempts(f.Context(), id)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		doubles["the task is lost"] += n - 1
		return
	}
	require.NoError(f, err)
	again := n - 1
	for _, a := range attempts {
		if a.Stage == stage && string(a.Outcome) == string(asyncflow.OutcomeLost) && again > 0 {
			doubles["the lease ran out"]++
			again--
		}
	}
	if again > 0 {
		doubles["the end is not in the database"] += again
	}
}
