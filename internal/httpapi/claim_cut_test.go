package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// rawClaim sends a call that asks for tasks over a connection of its own.
func (b *bundle) rawClaim(token, body string) (net.Conn, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn,
		"POST /v1/claims HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
	return conn, err
}

// waitingClaims waits until some calls wait for tasks.
func (b *bundle) waitingClaims(n int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.committer.WaitingClaims() == n }, patience,
		20*time.Millisecond)
}

// A claimer that is gone while it waits gets nothing: the next one does, at once.
func TestClaimerIsGone(t *testing.T) {
	b := setup(t)
	b.claimed()
	conn, err := b.rawClaim(b.newToken("acme", auth.ScopeWork),
		`{"type":"judge","stage":"look","claimer":"anna","wait":"1m"}`)
	require.NoError(t, err)
	b.waitingClaims(1)
	answer := make(chan []api.Delivery)
	go func() { answer <- b.claim("bob", `,"wait":"1m"`) }()
	b.waitingClaims(2)
	require.NoError(t, conn.Close())
	id := b.submitJudge(1)[0]
	got := <-answer
	require.Len(t, got, 1)
	assert.Equal(t, []any{id, 1}, []any{got[0].TaskID, got[0].Seq})
}

// Connections are cut while the calls are answered: no task is stuck for longer than the first
// claim, none is lost, and none is done twice.
func TestClaimsAreCut(t *testing.T) {
	b := setup(t)
	b.claimed()
	const tasks = 330
	var all []string
	for range tasks {
		all = append(all, `{"type":"judge","context":{}}`)
	}
	require.Equal(t, 201, b.call("POST", "/v1/tasks/batch",
		`{"tasks":[`+strings.Join(all, ",")+`]}`).status)
	judge, err := b.store.Catalog.Type("acme", "judge")
	require.NoError(t, err)

	b.giveBack()
	var done, cut atomic.Int32
	finish := func(d api.Delivery) {
		switch a := b.report(d, "complete", ``); a.status {
		case 200:
			done.Add(1)
		case 409: // it took longer than the first claim
		default:
			assert.Fail(t, "report", "%d %s", a.status, a.body)
		}
	}
	token := b.newToken("acme", auth.ScopeWork)
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := range 56 { // 42 of them are cut
				conn, err := b.rawClaim(token, fmt.Sprintf(
					`{"type":"judge","stage":"look","claimer":"w%d-%d","max":2}`, w, i))
				if !assert.NoError(t, err) {
					return
				}
				switch i % 4 {
				case 0: // before the answer
				case 1:
					until := time.Now().Add(rand.N(3 * time.Millisecond))
					for time.Now().Before(until) {
					}
				case 2: // while it is sent
					_, _ = conn.Read(make([]byte, 1))
				case 3:
					for _, d := range readClaims(t, conn) {
						finish(d)
					}
				}
				if i%4 != 3 {
					cut.Add(1)
				}
				conn.Close()
			}
		})
	}
	workers.Wait()
	var longest float64
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT coalesce(max(extract(epoch FROM
		until - leased_at)), 0)::float8 FROM tenant_acme.lease`).Scan(&longest))
	require.LessOrEqual(t, longest, asyncflow.FirstClaim.Seconds())

	b.exec(fmt.Sprintf( // without it the test would wait for tasks that nobody has
		`UPDATE tenant_acme.lease SET leased_at = leased_at - interval '%[1]d s',
			until = until - interval '%[1]d s'`, asyncflow.FirstClaim/time.Second))
	for i := 0; done.Load() < tasks; i++ {
		_, err := b.store.Rescue(t.Context(), judge)
		require.NoError(t, err)
		for _, d := range b.claim(fmt.Sprintf("rest-%d", i), `,"max":100,"wait":"100ms"`) {
			finish(d)
		}
	}
	require.EqualValues(t, tasks, done.Load())
	var once, open int
	require.NoError(t, b.db.QueryRow(t.Context(), `SELECT
		(SELECT count(*) FROM (SELECT id FROM tenant_acme.journal_1 WHERE outcome = 'done'
		  GROUP BY id HAVING count(*) = 1) j),
		(SELECT count(*) FROM tenant_acme.lease) + (SELECT count(*) FROM tenant_acme.wait)`).
		Scan(&once, &open))
	assert.Equal(t, []int{tasks, 0}, []int{once, open})
	var lost int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.journal_1 WHERE outcome NOT IN ('done', 'released')`).
		Scan(&lost))
	assert.Zero(t, lost, "no attempt is counted")
	assert.EqualValues(t, 8*42, cut.Load())
	t.Logf("%d connections were cut, %d claims given back at once", cut.Load(), b.givenBack())
}

// givenBack counts the claims that were given back as their claimer was gone.
func (b *bundle) givenBack() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT count(*) FROM tenant_acme.journal_1
		WHERE error = 'the claimer was gone before the answer'`).Scan(&n))
	return n
}

// giveBack cuts a connection while the database hands out its claim, and waits until it is given
// back: at once, as it is known to be with nobody. A trigger keeps the claim's transaction waiting;
// a lock that the transaction itself meets is waited for for 5 ms only.
func (b *bundle) giveBack() {
	b.t.Helper()
	b.exec(`CREATE FUNCTION tenant_acme.hold() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
		SET lock_timeout = 0
		AS $$ BEGIN PERFORM count(*) FROM tenant_acme.schedules; RETURN NULL; END $$;
		CREATE TRIGGER hold AFTER INSERT ON tenant_acme.lease
		FOR EACH STATEMENT EXECUTE FUNCTION tenant_acme.hold()`)
	unlock := pgtest.Hold(b.t, b.dbURL, `LOCK TABLE tenant_acme.schedules`)
	conn, err := b.rawClaim(b.newToken("acme", auth.ScopeWork),
		`{"type":"judge","stage":"look","claimer":"gone"}`)
	require.NoError(b.t, err)
	defer conn.Close()
	require.Eventually(b.t, func() (waits bool) {
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), `SELECT count(*) > 0 FROM `+
			pgtest.Activity()+` WHERE wait_event_type = 'Lock' AND datname = current_database()`).
			Scan(&waits))
		return waits
	}, patience, 5*time.Millisecond)
	require.NoError(b.t, conn.Close())
	unlock()
	require.Eventually(b.t, func() bool { return b.givenBack() == 1 }, patience,
		5*time.Millisecond)
	b.exec(`DROP FUNCTION tenant_acme.hold CASCADE`)
}

func readClaims(t *testing.T, conn net.Conn) []api.Delivery {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if !assert.NoError(t, err) {
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	var list api.ClaimList
	assert.NoError(t, json.Unmarshal(body, &list), "%s", body)
	return list.Claims
}
