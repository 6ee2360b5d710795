package httpapi_test

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// BenchmarkClaim claims tasks of a backlog, each call for another claimer, so that none gets its
// open claims again.
func BenchmarkClaim(b *testing.B) {
	s := setupOn(b, func(*store.Config) {}, func(c *httpapi.Config) { c.MaxBody = 1 << 20 })
	s.claimed()
	token := s.newToken("acme", auth.ScopeWork)
	task := `{"type":"judge","context":{"image":"` + strings.Repeat("x", 188) + `"}}`
	batch := post(s.token, "/v1/tasks/batch", `{"tasks":[`+strings.Repeat(task+",", 999)+task+`]}`)
	fill := s.poster(b, 201)
	var claimer atomic.Int64
	for _, c := range []struct {
		name         string
		max, callers int
	}{{"max=50", 50, 4}, {"max=1", 1, 64}} {
		b.Run(c.name, func(b *testing.B) {
			for range (b.N*c.max + 999) / 1000 {
				fill(batch)
			}
			b.SetParallelism(max(1, c.callers/runtime.GOMAXPROCS(0)))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				call := s.poster(b, 200)
				for pb.Next() {
					call(post(token, "/v1/claims", fmt.Sprintf(
						`{"type":"judge","stage":"look","claimer":"c%d","max":%d}`, claimer.Add(1),
						c.max)))
				}
			})
			b.ReportMetric(float64(b.N*c.max)/b.Elapsed().Seconds(), "tasks/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkWaitingClaim submits tasks to a claimer that waits, and measures the time from the
// submit to its answer.
func BenchmarkWaitingClaim(b *testing.B) {
	s := setupOn(b, func(*store.Config) {}, func(*httpapi.Config) {})
	s.claimed()
	token := s.newToken("acme", auth.ScopeWork)
	claim, submit := s.poster(b, 200), s.poster(b, 201)
	task := post(s.token, "/v1/tasks", `{"type":"judge","context":1}`)
	var took []time.Duration
	for i := range b.N {
		got := make(chan time.Time)
		go func() {
			claim(post(token, "/v1/claims", fmt.Sprintf(
				`{"type":"judge","stage":"look","claimer":"w%d","wait":"1m"}`, i)))
			got <- time.Now()
		}()
		for s.committer.WaitingClaims() == 0 {
			time.Sleep(time.Millisecond)
		}
		begin := time.Now()
		submit(task)
		took = append(took, (<-got).Sub(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

func post(token, path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nUser-Agent: bench\r\nAuthorization: "+
		"Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, token, len(body), body)
}

// A claimer that waits costs a node at most 20 kB beside its connection, and the database nothing.
func TestWaitingClaimsAreCheap(t *testing.T) {
	const claimers = 100
	// Not beside other tests: the memory of the whole process is measured.
	b := setupOn(t, func(*store.Config) {}, func(c *httpapi.Config) {
		c.Streams.MaxPerTenant = claimers
	})
	b.claimed()
	b.pipe()
	token := b.newToken("acme", auth.ScopeWork)
	memory := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // once more, for what finalizers and pools kept
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	b.claim("first", "")
	empty := memory()
	calls := make([]net.Conn, claimers)
	for i := range calls {
		conn, err := b.rawClaim(token, `{"type":"judge","stage":"look","claimer":"anna"}`)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.Empty(t, readClaims(t, conn))
		calls[i] = conn
	}
	before := memory()
	for i, conn := range calls {
		_, err := conn.Write(post(token, "/v1/claims", fmt.Sprintf(
			`{"type":"judge","stage":"look","claimer":"c%d","wait":"1m"}`, i)))
		require.NoError(t, err)
	}
	b.waitingClaims(claimers)
	used := (memory() - before) / claimers
	t.Logf("a waiting claimer: %d bytes, and %d for both ends of its connection", used,
		(before-empty)/claimers)
	require.Less(t, used, 20<<10)
	over := b.claimCall("one-more", `,"wait":"1m"`)
	require.Equal(t, 429, over.status, "%s", over.body)

	looks := b.committer.ClaimLooks()
	for range 20 {
		b.submitOne() // of another type
	}
	require.Equal(t, looks, b.committer.ClaimLooks(), "nothing is due")
	b.submitJudge(1)
	b.waitingClaims(claimers - 1)
}
