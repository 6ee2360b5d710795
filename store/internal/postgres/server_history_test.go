package postgres_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// promoted are two servers that take writes: a standby was promoted, and nobody stopped the old
// primary.
type promoted struct {
	old, present *devpg.Server
}

func promote(t *testing.T) promoted {
	t.Helper()
	old := pgtest.Server(t, devpg.Config{})
	standby := pgtest.Standby(t, old)
	exec(t, standby, `SELECT pg_promote()`)
	return promoted{old, standby}
}

// exec runs a statement on a server, by a connection of its own.
func exec(t *testing.T, server *devpg.Server, sql string) {
	t.Helper()
	conn, err := postgres.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// pooled is a pool with a prober that looks only when it is told to.
type pooled struct {
	*testing.T
	*pgxpool.Pool
	*postgres.Prober
	group *postgres.PoolGroup
}

// pool returns a pool of two hosts, and a prober.
func pool(t *testing.T, first, second string) pooled {
	t.Helper()
	u, err := url.Parse(second)
	require.NoError(t, err)
	address := withHost(t, first, u.Host) + "&target_session_attrs=read-write"
	p := pooled{T: t, group: &postgres.PoolGroup{}}
	p.Pool, err = postgres.NewPool(t.Context(), postgres.PoolConfig{URL: address, Size: 2,
		NoRoles: true, Statement: time.Hour, Group: p.group})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	p.Prober, err = postgres.NewProber(t.Context(), address, p.Pool, p.group)
	require.NoError(t, err)
	return p
}

// timeline returns the timeline of the server that a connection of the pool reaches.
func (p pooled) timeline() (timeline string, err error) {
	err = p.QueryRow(p.Context(), `SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)`).
		Scan(&timeline)
	return timeline, err
}

// requireTimeline waits until connections of the pool reach a server of a timeline.
func (p pooled) requireTimeline(want string) {
	p.Helper()
	var got string
	require.Eventually(p, func() (ok bool) {
		var err error
		got, err = p.timeline()
		return err == nil
	}, patience, time.Millisecond)
	require.Equal(p, want, got)
}

// requireEnd probes until an era ends.
func (p pooled) requireEnd(era context.Context) {
	p.Helper()
	require.Eventually(p, func() bool {
		p.Probe(p.Context())
		return era.Err() != nil
	}, patience, time.Millisecond, "there is no other server")
}

// An old primary that nobody stopped takes writes. Neither the prober nor a connection of a pool
// goes there, unless the server that replaced it is gone for long. The search for that one goes on
// meanwhile.
func TestPoolsAvoidTheOldPrimary(t *testing.T) {
	t.Parallel()
	for name, refuses := range map[string]bool{"it refuses": true, "it is silent": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := promote(t)
			network, address := pgtest.Behind(t, servers.present.URL("postgres"))
			if refuses {
				address = servers.present.URL("postgres")
			}
			p := pool(t, address, servers.old.URL("postgres"))
			p.requireTimeline("00000002")
			lose := func() {
				network.Silence()
				if refuses {
					require.NoError(t, servers.present.Stop(t.Context()))
				}
				p.Reset() // closes what is idle
			}
			restore := func() {
				network.Heal()
				if refuses {
					servers.present = pgtest.Server(t, servers.present.Config())
				}
			}

			era := p.Era()
			lose()
			p.SearchFor(time.Second)
			require.Error(t, p.Ping(t.Context()))
			require.Eventually(t, func() bool { return p.Stat().ConstructingConns() == 0 },
				patience, time.Millisecond, "the attempt has ended, after its caller went")
			require.Zero(t, p.Stat().IdleConns(), "it has reached the old primary")
			p.Probe(t.Context())
			require.NoError(t, era.Err(), "the old primary is no successor")
			require.True(t, p.group.Suspicious(), "the prober goes on looking")
			restore()
			require.Eventually(t, func() bool {
				p.Probe(t.Context())
				return !p.group.Suspicious()
			}, patience, time.Millisecond, "the present one is there again")
			p.requireTimeline("00000002")

			era = p.Era()
			lose()
			p.SearchFor(time.Minute)
			p.requireEnd(era)
			p.requireTimeline("00000001")
		})
	}
}

// A node that works with an old primary goes on to the later server as soon as a connection reaches
// that one: no connection stays behind, even if the old primary answers.
func TestPoolsFollowTheLaterServer(t *testing.T) {
	t.Parallel()
	servers := promote(t)
	network, address := pgtest.Behind(t, servers.old.URL("postgres"))
	p := pool(t, address, servers.present.URL("postgres"))
	stays, err := p.Acquire(t.Context())
	require.NoError(t, err)
	defer stays.Release()
	p.Probe(t.Context())
	era := p.Era()
	require.False(t, p.group.Suspicious())

	network.Lead("postgres://127.0.0.1:1")
	p.requireTimeline("00000002")
	network.Lead(servers.old.URL("postgres"))
	require.True(t, p.group.Suspicious())
	p.requireEnd(era)
	require.Error(t, stays.Ping(t.Context()), "the old primary has a connection")
	p.requireTimeline("00000002")
	require.Eventually(t, func() bool {
		p.Probe(t.Context())
		return !p.group.Suspicious()
	}, patience, time.Millisecond)
}

// A connection to the old primary may be opened while a probe finds the later server. It doesn't
// outlive that.
func TestLateConnectionToTheOldPrimary(t *testing.T) {
	t.Parallel()
	servers := promote(t)
	network, address := pgtest.Behind(t, servers.old.URL("postgres"))
	p := pool(t, address, servers.present.URL("postgres"))
	began, era := time.Now(), p.Era()
	p.Reset()
	late, err := p.Acquire(t.Context())
	require.NoError(t, err)
	defer late.Release()
	network.Lead("postgres://127.0.0.1:1")
	require.Eventually(t, func() bool {
		p.ProbeSince(t.Context(), began)
		return era.Err() != nil
	}, patience, time.Millisecond)
	require.Error(t, late.Ping(t.Context()))
	p.requireTimeline("00000002")
}

// A server without a further connection isn't gone, however long the search for it takes.
func TestFullServerIsThere(t *testing.T) {
	t.Parallel()
	servers := promote(t)
	exec(t, servers.present, `CREATE ROLE bounded LOGIN PASSWORD 'b' IN ROLE pg_monitor
		CONNECTION LIMIT 1`)
	exec(t, servers.old, `CREATE ROLE bounded LOGIN PASSWORD 'b' IN ROLE pg_monitor`)
	u, err := url.Parse(servers.present.URL("postgres"))
	require.NoError(t, err)
	u.User = url.UserPassword("bounded", "b")
	p := pool(t, u.String(), servers.old.URL("postgres"))
	cluster, _ := p.Present()
	require.NotEmpty(t, cluster)
	used, err := p.Acquire(t.Context())
	require.NoError(t, err)
	defer used.Release()
	era := p.Era()
	require.Error(t, p.Ping(t.Context()), "the server has no second connection")
	require.Eventually(t, func() bool {
		p.SearchFor(time.Minute)
		p.Probe(t.Context())
		return !p.Due(time.Now())
	}, patience, time.Millisecond, "it pauses")
	require.NoError(t, era.Err(), "the old primary is no successor")
	require.NoError(t, used.Ping(t.Context()))
}

// What the prober couldn't learn about its server at first, it learns later.
func TestProberLearnsTheTimeline(t *testing.T) {
	t.Parallel()
	servers := promote(t)
	p := pool(t, servers.present.URL("postgres"), servers.old.URL("postgres"))
	cluster, timeline := p.Present()
	assert.NotEmpty(t, cluster)
	assert.Equal(t, "00000002", timeline)
	p.ForgetTimeline()
	require.Eventually(t, func() bool {
		p.Probe(t.Context())
		known, timeline := p.Present()
		return known == cluster && timeline == "00000002"
	}, patience, time.Millisecond)
}
