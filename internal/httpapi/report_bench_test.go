package httpapi_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// BenchmarkReport reports on deliveries that were answered with 202, like BenchmarkSubmit submits.
// cpu-ns/call is the processor time of this process, including the callers.
func BenchmarkReport(b *testing.B) {
	s := setupOn(b, func(*store.Config) {}, func(*httpapi.Config) {})
	require.Equal(b, 201, s.call("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"first","timeout":"1h"}]}`).status)
	for _, c := range []struct{ call, body string }{
		{"complete", `{"output":{"thumbnails":["harbour.256.png"]}}`},
		{"complete", ""},
		{"fail", `{"error":"the image is not readable","retryable":false}`},
	} {
		b.Run(fmt.Sprintf("%s=%d", c.call, len(c.body)), func(b *testing.B) {
			leases := s.leases(b, b.N)
			requests := make([][]byte, b.N)
			for i, l := range leases {
				token := s.keys.CompletionToken(callbacks.Completion{Tenant: "acme", Task: l.ID,
					Seq: l.Seq, Expiry: time.Now().Add(time.Hour)})
				requests[i] = fmt.Appendf(nil,
					"POST /v1/callbacks/%s/%s HTTP/1.1\r\nHost: x\r\nUser-Agent: "+
						"bench\r\nAuthorization: Bearer %s\r\nContent-Type: "+
						"application/json\r\nContent-Length: %d\r\n\r\n%s",
					l.ID, c.call, token, len(c.body), c.body)
			}
			var next atomic.Int64
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			spent := processorTime(b)
			b.ResetTimer()
			b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(pb *testing.PB) {
				call := s.poster(b, 200)
				for pb.Next() {
					i := next.Add(1) - 1
					s.committer.Accept("acme", leases[i], leases[i].Until.Add(time.Hour),
						store.Seen{}, func(error) {})
					call(requests[i])
				}
			})
			b.ReportMetric(float64(processorTime(b)-spent)/float64(b.N), "cpu-ns/call")
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N), "B/call")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/call")
		})
	}
}

// leases submits tasks and leases them.
func (b *bundle) leases(t testing.TB, n int) (all []asyncflow.Lease) {
	pipe, err := b.store.Catalog.Type("acme", "pipe")
	require.NoError(t, err)
	for left := n; left > 0; left -= asyncflow.MaxBatch {
		tasks := make([]asyncflow.NewTask, min(left, asyncflow.MaxBatch))
		for i := range tasks {
			tasks[i] = asyncflow.NewTask{Type: "pipe", Context: json.RawMessage("1")}
		}
		for _, r := range b.committer.Submit(t.Context(), "acme", tasks) {
			require.NoError(t, r.Err)
		}
	}
	for len(all) < n {
		some, _, err := b.store.Lease(t.Context(), pipe, min(n-len(all), 500))
		require.NoError(t, err)
		all = append(all, some...)
	}
	return all
}

// processorTime returns the processor time that this process used so far, in nanoseconds.
func processorTime(t testing.TB) int64 {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}
