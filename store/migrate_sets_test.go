package store_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store"
)

// A schema of version 18 is the last one in which each type has its own tables.
const (
	earlierType = `
CREATE TABLE lease_pipe (
  id bigint PRIMARY KEY, seq smallint NOT NULL CHECK (seq > 0), stage text NOT NULL,
  attempt smallint NOT NULL CHECK (attempt > 0), node text NOT NULL, leased_at timestamptz NOT NULL,
  until timestamptz NOT NULL, progress smallint CHECK (progress BETWEEN 0 AND 100), note text,
  key text, endpoint uuid
);
CREATE INDEX ON lease_pipe (key) WHERE key IS NOT NULL;
CREATE TABLE wait_pipe (
  id bigint PRIMARY KEY, seq smallint NOT NULL CHECK (seq > 0), stage text NOT NULL,
  attempt smallint NOT NULL CHECK (attempt > 0), order_time timestamptz NOT NULL,
  reason text NOT NULL CHECK (reason IN ('delay', 'retry', 'endpoint', 'flow_key', 'endpoint_limit',
    'endpoint_unhealthy')),
  key text, until timestamptz NOT NULL, since timestamptz
);
CREATE INDEX ON wait_pipe (until);
CREATE INDEX ON wait_pipe (key, order_time, id) WHERE reason = 'flow_key';
CREATE INDEX ON wait_pipe (key) WHERE key IS NOT NULL AND reason <> 'flow_key';
CREATE INDEX ON wait_pipe (stage, order_time, id) WHERE until = 'infinity' AND reason <> 'flow_key';`
	earlierRoll = `
CREATE TABLE task_pipe_$ (
  id bigint PRIMARY KEY, created_at timestamptz NOT NULL, order_time timestamptz NOT NULL,
  options json, context text NOT NULL
) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE journal_pipe_$ (
  id bigint NOT NULL, seq smallint NOT NULL CHECK (seq > 0), at timestamptz NOT NULL,
  stage text NOT NULL, attempt smallint NOT NULL CHECK (attempt > 0),
  outcome text NOT NULL CHECK (outcome IN ('done', 'failed', 'rejected', 'lost', 'released',
    'cancelled', 'redriven', 'changed')),
  final text CHECK (final IN ('succeeded', 'failed', 'cancelled')), endpoint text, duration real,
  status smallint, error text, output text, next_time timestamptz, options json,
  PRIMARY KEY (id, seq)
) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE INDEX ON journal_pipe_$ (id) WHERE final <> 'succeeded';
CREATE TABLE ready_pipe_$ (
  order_time timestamptz NOT NULL, id bigint NOT NULL, seq smallint NOT NULL CHECK (seq > 0),
  stage text NOT NULL, attempt smallint NOT NULL CHECK (attempt > 0), key text, since timestamptz
);
CREATE INDEX ON ready_pipe_$ (order_time, id);
CREATE INDEX ON ready_pipe_$ (key, order_time, id) WHERE key IS NOT NULL;
SELECT open_roll('pipe', $, now());
UPDATE task_types SET end_pos = $;`
	earlierSeal = `
ALTER TABLE task_pipe_$ ADD CONSTRAINT sealed FOREIGN KEY (id) REFERENCES sealed NOT VALID;
ALTER TABLE ready_pipe_$ ADD CONSTRAINT sealed FOREIGN KEY (id) REFERENCES sealed NOT VALID;
UPDATE rolls SET sealed_at = now() WHERE position = $;`
)

// migrationsTo returns the migrations of tenants up to a version.
func migrationsTo(t *testing.T, version int) fs.FS {
	t.Helper()
	early := fstest.MapFS{}
	names, err := fs.Glob(migrations.Tenant(), "*.sql")
	require.NoError(t, err)
	for _, name := range names[:version] {
		data, err := fs.ReadFile(migrations.Tenant(), name)
		require.NoError(t, err)
		early[name] = &fstest.MapFile{Data: data}
	}
	return early
}

// earlier returns a database whose tenant acme has a schema of version 18 with the type pipe and
// its first roll. There is no node.
func earlier(t *testing.T) *bundle {
	t.Helper()
	t.Parallel()
	b := &bundle{t: t, url: pgtest.Database(t, nil)}
	_, err := store.Migrate(t.Context(), b.url)
	require.NoError(t, err)
	b.db, err = pgxpool.New(t.Context(), b.url)
	require.NoError(t, err)
	t.Cleanup(b.db.Close)
	b.migrateTo(18)
	spec, err := json.Marshal(twoStages())
	require.NoError(t, err)
	b.exec(`INSERT INTO asyncflow.tenants (slug, schema_version) VALUES ('acme', 18)`)
	b.exec(`INSERT INTO tenant_acme.task_types (name, version, spec, first_pos, begin_pos, end_pos,
		created_at, updated_at) VALUES ('pipe', 1, $1::text::json, 1, 1, 1, now(), now())`, string(spec))
	b.inSchema(earlierType)
	b.earlierRoll(1)
	return b
}

// migrateTo migrates the tenant's schema to a version.
func (b *bundle) migrateTo(version int) {
	b.t.Helper()
	_, err := store.MigrateSchema(b.t.Context(), b.url, "tenant_acme", migrationsTo(b.t, version))
	require.NoError(b.t, err)
}

// migrated migrates the database to the latest version, and opens a node.
func (b *bundle) migrated() *bundle {
	b.t.Helper()
	_, err := store.Migrate(b.t.Context(), b.url)
	require.NoError(b.t, err)
	return open(b.t, b.url, "node-1")
}

// inSchema runs statements in the tenant's schema.
func (b *bundle) inSchema(sql string) {
	b.t.Helper()
	b.exec(`DO $do$ BEGIN
		SET LOCAL search_path = tenant_acme;` + strings.ReplaceAll(sql, "SELECT open", "PERFORM open") +
		` END $do$`)
}

func (b *bundle) earlierRoll(position int) {
	b.t.Helper()
	b.inSchema(strings.ReplaceAll(earlierRoll, "$", strconv.Itoa(position)))
}

// earlierTasks puts tasks into three rolls as a node of version 18 does, and returns them. The
// first roll is cleared, the second one sealed, and the third one open.
func (b *bundle) earlierTasks() map[asyncflow.TaskID]asyncflow.Status {
	b.t.Helper()
	b.earlierRoll(2)
	b.earlierRoll(3)
	all := map[asyncflow.TaskID]asyncflow.Status{}
	due := time.Now().Add(-time.Minute)
	submit := func(position, number int, status asyncflow.Status, token string) {
		id := asyncflow.NewTaskID("pipe", position, int64(number))
		all[id] = status
		fill := func(sql string) string { return strings.ReplaceAll(sql, "$p", strconv.Itoa(position)) }
		b.exec(fill(`INSERT INTO tenant_acme.task_pipe_$p (id, created_at, order_time, context)
			VALUES ($1, $2, $2, $3)`), id.Number, due, fmt.Sprintf("%q", status))
		b.exec(`INSERT INTO tenant_acme.tallies (type, at, submitted, failed)
			VALUES ('pipe', now(), 1, $1)`, map[bool]int{true: 1}[status == asyncflow.StatusFailed])
		b.exec(fill(token), id.Number, due)
	}
	const failed = `INSERT INTO tenant_acme.journal_pipe_$p (id, seq, at, stage, attempt, outcome, final)
		VALUES ($1, 1, $2, 'first', 1, 'rejected', 'failed')`
	const ready = `INSERT INTO tenant_acme.ready_pipe_$p (id, order_time, seq, stage, attempt)
		VALUES ($1, $2, 1, 'first', 1)`
	const leased = `INSERT INTO tenant_acme.lease_pipe (id, seq, stage, attempt, node, leased_at, until)
		VALUES ($1, 1, 'first', 1, 'node-0', $2, now() + interval '1 h')`
	const waits = `INSERT INTO tenant_acme.wait_pipe (id, seq, stage, attempt, order_time, reason, until)
		VALUES ($1, 1, 'first', 1, $2, 'delay', now() + interval '1 h')`
	for position := 1; position <= 3; position++ {
		submit(position, 1, asyncflow.StatusFailed, failed)
		submit(position, 2, asyncflow.StatusRunning, leased)
		submit(position, 3, asyncflow.StatusWaiting, waits)
		if position > 1 {
			submit(position, 4, asyncflow.StatusPending, ready)
		}
	}
	b.exec(`UPDATE tenant_acme.rolls SET next_number = 100`)
	b.inSchema(strings.ReplaceAll(earlierSeal, "$", "1"))
	b.inSchema(strings.ReplaceAll(earlierSeal, "$", "2"))
	b.inSchema(`DROP TABLE ready_pipe_1;
		UPDATE rolls SET drained_at = now(), ready_dropped = true WHERE position = 1;
		UPDATE task_types SET begin_pos = 2;`)
	return all
}

// The tasks of a type with its own tables go on there. Its next tasks go to the tables that types
// share, and when the last of the old ones is gone, so are its tables.
func TestMigrateToSharedTables(t *testing.T) {
	b := earlier(t)
	all := b.earlierTasks()
	b = b.migrated()
	at := func(position, number int) asyncflow.TaskID {
		return asyncflow.NewTaskID("pipe", position, int64(number))
	}
	pipe := b.known()
	require.Equal(t, "pipe", pipe.Set().Name)
	require.Equal(t, []int{1, 2, 3}, []int{pipe.First, pipe.Begin, pipe.End})
	for id, status := range all {
		require.Equal(t, status, b.task(id).Status, id)
	}
	require.Zero(t, b.count(
		`SELECT count(*) FROM pg_class WHERE relname ~ '^(lease|wait)_pipe'`))
	b.checkTokens("pipe")
	b.checkTallies("pipe")
	list, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Limit: 100})
	require.NoError(t, err)
	require.Len(t, list, len(all))

	// Tasks of all rolls go on.
	fresh := b.submit(newTask(`"fresh"`))[0].ID
	require.Equal(t, at(3, 100), fresh)
	bySQL, err := b.bySQL(b.app(), `'pipe', '1'`)
	require.NoError(t, err)
	require.Equal(t, 3, bySQL.Position())
	_, err = b.Redrive(t.Context(), tenant, at(1, 1), store.Redrive{})
	require.NoError(t, err)
	_, err = b.Change(t.Context(), tenant, at(1, 3), asyncflow.Patch{RunAt: b.Clock.Now()})
	require.NoError(t, err)
	for position := 1; position <= 3; position++ {
		l, stands, err := b.LeaseOf(t.Context(), tenant, at(position, 2), 1)
		require.NoError(t, err)
		require.True(t, stands)
		r := b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		require.Equal(t, store.Settled{}, r)
		require.Equal(t, "second", b.task(l.ID).Stage)
	}
	var ids []asyncflow.TaskID
	for range 9 {
		ids = append(ids, b.leaseOne(pipe).ID)
	}
	require.Equal(t, []asyncflow.TaskID{at(2, 4), at(3, 4), fresh, bySQL, at(1, 1), at(1, 3), at(1, 2),
		at(2, 2), at(3, 2)}, ids)
	b.checkTokens("pipe")

	// The next roll is one of the shared set.
	require.False(t, b.move(), "an earlier roll isn't drained")
	b.stepRolls(b.known().Set())
	require.True(t, b.move())
	require.True(t, b.known().Set().Shared())
	next := b.submit(newTask(`"next"`))[0].ID
	require.Equal(t, 4, next.Position())
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.task_4`))
	require.Equal(t, next, b.leaseOne(b.known()).ID)
	b.checkTokens("pipe")
	b.checkTallies("pipe")

	// The retention drops the old tables.
	left := func() *store.TableSet { return b.Catalog.SetsOf(tenant)["pipe"] }
	for range 4 {
		b.stepRolls(left())
	}
	drop := func() bool {
		t.Helper()
		dropped, err := b.DropRoll(t.Context(), left(), b.Clock.Now().Add(time.Hour))
		require.NoError(t, err)
		return dropped
	}
	require.False(t, drop(), "its tasks are leased")
	for id := range all {
		_, err := b.Cancel(t.Context(), tenant, id, "")
		require.Contains(t, []asyncflow.Code{"", asyncflow.CodeConflict}, codeOf(err), "%v", err)
	}
	for _, id := range []asyncflow.TaskID{fresh, bySQL} {
		_, err := b.Cancel(t.Context(), tenant, id, "")
		require.NoError(t, err)
	}
	b.stepRolls(left())
	for position := 1; position <= 3; position++ {
		require.NotNil(t, left())
		require.True(t, drop(), "roll %d", position)
	}
	require.Nil(t, left())
	require.Zero(t, b.count(`SELECT count(*) FROM pg_class WHERE relname ~ '_pipe_[0-9]$'`))
	require.Equal(t, asyncflow.StatusRunning, b.task(next).Status)
	_, err = b.Task(t.Context(), tenant, fresh)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// codeOf is asyncflow.CodeOf, or "" without an error.
func codeOf(err error) asyncflow.Code {
	if err == nil {
		return ""
	}
	return asyncflow.CodeOf(err)
}
