package store_test

import (
	"context"
	"encoding/json"
	"hash/crc32"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// patience bounds the wait for what comes by itself. It is long, since a slow machine is
// no fault, and costs nothing where the wait ends with what it is for.
const patience = 2 * time.Minute

const tenant = "acme"

// bundle is a store over a database of the test's own, the committer that writes through it, and
// a way to look at the database from the side.
type bundle struct {
	*store.Store
	*dispatcher.Committer
	t   *testing.T
	url string
	db  pgtest.DB
	own bool // the types that it puts ask for tables of their own
}

// prepare fills the template database.
func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, store.WithoutRoles(pgtest.NoRoles())); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, tenant, store.WithoutRoles(pgtest.NoRoles()))
	return err
}

// prepareTwo is prepare, with the tenant other beside acme. Few tests need it: a tenant costs each
// copy of the template some 10 ms, and each node that opens as much.
func prepareTwo(ctx context.Context, url string) error {
	if err := prepare(ctx, url); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, "other", store.WithoutRoles(pgtest.NoRoles()))
	return err
}

func setup(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	return open(t, pgtest.Database(t, prepare), "node-1")
}

// setupTwo is setup for a test of two tenants.
func setupTwo(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	return open(t, pgtest.Database(t, prepareTwo), "node-1")
}

// eachSet runs a test of types that share tables, and of types with their own. The statements are
// the same, with other names: in the short form half of the tests take the one kind, and half the
// other.
func eachSet(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	eachSetOn(t, setup, test)
}

// eachSetOn is eachSet with a setup of the test's own.
func eachSetOn(
	t *testing.T, setup func(*testing.T) *bundle, test func(t *testing.T, b *bundle),
) {
	t.Helper()
	t.Parallel()
	half := crc32.ChecksumIEEE([]byte(t.Name()))%2 == 0
	for name, own := range map[string]bool{"shared": false, "own": true} {
		if own != half && !longform.Asked() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.own = own
			test(t, b)
		})
	}
}

// withOwnSet makes a type ask for tables of its own.
func withOwnSet(t asyncflow.TaskType) asyncflow.TaskType {
	t.RollRows = asyncflow.DefaultRollRows + 1
	return t
}

// open opens a node's store on a database and keeps it running.
func open(t *testing.T, url, node string) *bundle {
	t.Helper()
	return openWith(t, url, node, func(*store.Store) {})
}

// openWith does something with the store before it runs.
func openWith(t *testing.T, url, node string, before func(*store.Store)) *bundle {
	t.Helper()
	s := pgtest.Insist(t, func() (*store.Store, error) {
		return store.Open(t.Context(), store.Config{URL: url, Node: node, Notify: true, Pool: 4,
			HotPool: 4, NoRoles: pgtest.NoRoles(), Log: slog.New(slog.DiscardHandler)})
	})
	before(s)
	return keepRunning(t, s, url)
}

// keepRunning runs an open store on the database at a URL until the end of the test.
func keepRunning(t *testing.T, s *store.Store, url string) *bundle {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	db, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(func() {
		c.Close()
		cancel()
		require.NoError(t, receive(t, done))
		s.Close()
		db.Close()
	})
	return &bundle{Store: s, Committer: c, t: t, url: url, db: pgtest.DB{Pool: db}}
}

// byHand gives the node a committer that hears of nothing: it follows up when a test says so.
func (b *bundle) byHand() {
	if b.Committer != nil {
		b.Committer.Close()
	}
	deaf := *b.Store
	deaf.Wakeups = new(store.Wakeups)
	b.Committer = dispatcher.NewCommitter(&deaf, nil)
	b.t.Cleanup(b.Committer.Close)
}

// twoStages is a task type with quick retries.
func twoStages() asyncflow.TaskType {
	retry := asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(-0.001)}
	return asyncflow.TaskType{Name: "pipe", Stages: []asyncflow.Stage{
		{Name: "first", Retry: retry, Timeout: asyncflow.NewDuration(time.Second)},
		{Name: "second", Retry: retry, Timeout: asyncflow.NewDuration(time.Second)},
	}}.WithDefaults()
}

func (b *bundle) put(t asyncflow.TaskType) *store.Type {
	b.t.Helper()
	return b.putOf(tenant, t)
}

// putOf puts a type of a tenant.
func (b *bundle) putOf(tenant string, t asyncflow.TaskType) *store.Type {
	b.t.Helper()
	if b.own {
		t = withOwnSet(t)
	}
	_, _, err := b.PutTaskType(b.t.Context(), tenant, t)
	require.NoError(b.t, err)
	known, err := b.Catalog.Type(tenant, t.Name)
	require.NoError(b.t, err)
	return known
}

// fill returns a statement with the names of the tables of a type at a position in it, and the
// number of the type for {number}.
func fill(t *store.Type, position int, sql string) string {
	return strings.ReplaceAll(t.SQL(position, sql), "{number}", strconv.Itoa(int(t.Number())))
}

// at returns a statement with the names of the tables of the type pipe at a position in it.
func (b *bundle) at(position int, sql string) string {
	b.t.Helper()
	return fill(b.known(), position, sql)
}

func (b *bundle) submit(tasks ...asyncflow.NewTask) []store.Submitted {
	b.t.Helper()
	results := b.Submit(b.t.Context(), tenant, tasks)
	for i, r := range results {
		require.NoError(b.t, r.Err, "task %d", i)
	}
	return results
}

func newTask(context string) asyncflow.NewTask {
	return asyncflow.NewTask{Type: "pipe", Context: json.RawMessage(context)}
}

// lease leases tasks. It tries again while somebody waits for the lock of a table, as a seal does.
func (b *bundle) lease(t *store.Type, n int) []asyncflow.Lease {
	b.t.Helper()
	for until := time.Now().Add(patience); ; {
		leases, _, err := b.Lease(b.t.Context(), t, n)
		if store.IsHeld(err) && time.Now().Before(until) {
			continue
		}
		require.NoError(b.t, err)
		return leases
	}
}

// settle settles a lease with an outcome and waits for the result.
func (b *bundle) settle(t *store.Type, l asyncflow.Lease, o asyncflow.Outcome) store.Settled {
	b.t.Helper()
	return b.conclude(l, o, asyncflow.Decide(t.TaskType, l, o, b.Clock.Now()))
}

// conclude settles a lease with an outcome and a verdict, and waits for the result.
func (b *bundle) conclude(
	l asyncflow.Lease,
	o asyncflow.Outcome,
	v asyncflow.Verdict,
) store.Settled {
	done := make(chan store.Settled, 1)
	b.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o, Verdict: v},
		func(r store.Settled) { done <- r })
	return receive(b.t, done)
}

// commit commits writes in one transaction.
func (b *bundle) commit(all []*store.Writes) error {
	_, err := b.Commit(b.t.Context(), all)
	return err
}

// eventually waits for something that another goroutine or the clock brings about.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, patience, 20*time.Millisecond, what)
}

// receive waits for a value that another goroutine sends, or for the end of a channel.
func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience * time.Duration(longform.Size(1, 5))):
		require.FailNow(t, "another goroutine has sent nothing for minutes")
	}
	return v
}

// waitAll waits for the end of goroutines, as receive does.
func waitAll(t *testing.T, running *sync.WaitGroup) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running.Wait()
	}()
	receive(t, ended)
}

// checkTokens asserts the rule that of a live task there is exactly one token row and of a final
// one none.
func (b *bundle) checkTokens(name string) {
	b.t.Helper()
	t, err := b.Catalog.Type(tenant, name)
	require.NoError(b.t, err)
	for _, position := range t.Rolls() {
		var wrong int
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), fill(t, position, `
			WITH tokens AS (
			  SELECT type, id FROM {readies} r
			  UNION ALL SELECT type, id FROM {lease}
			  UNION ALL SELECT type, id FROM {wait}),
			state AS (
			  SELECT t.id, (SELECT count(*) FROM tokens k WHERE k.type = t.type AND k.id = t.id) AS n,
			    coalesce((SELECT j.final IS NOT NULL FROM {journal} j
			      WHERE j.type = t.type AND j.id = t.id ORDER BY j.seq DESC LIMIT 1), false) AS final
			  FROM {task} t WHERE t.type = {number})
			SELECT count(*) FROM state WHERE n <> CASE WHEN final THEN 0 ELSE 1 END`)).Scan(&wrong))
		require.Zero(b.t, wrong, "tasks of roll %d with a wrong number of token rows", position)
	}
}
