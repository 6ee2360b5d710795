package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// BenchmarkSubmit submits tasks over connections that allocate nothing, so that the memory per task
// is that of the server.
func BenchmarkSubmit(b *testing.B) {
	task := `{"type":"pipe","context":{"image":"` + strings.Repeat("x", 188) + `"}}`
	s := setupOn(b, func(*store.Config) {}, func(*httpapi.Config) {})
	s.pipe()
	for _, c := range []struct {
		name, path, body string
		tasks, callers   int
	}{
		{"one", "/v1/tasks", task, 1, 32},
		{"batch=100", "/v1/tasks/batch", `{"tasks":[` + strings.Repeat(task+",", 99) + task + `]}`,
			100, 4},
	} {
		b.Run(c.name, func(b *testing.B) {
			request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nUser-Agent: "+
				"bench\r\nAuthorization: Bearer %s\r\nContent-Type: "+
				"application/json\r\nContent-Length: %d\r\n\r\n%s",
				c.path, s.token, len(c.body), c.body)
			s.poster(b, 201)(request) // makes what is made once
			b.ResetTimer()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.SetParallelism(max(1, c.callers/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(pb *testing.PB) {
				call := s.poster(b, 201)
				for pb.Next() {
					call(request)
				}
			})
			runtime.ReadMemStats(&after)
			tasks := float64(b.N * c.tasks)
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/tasks, "B/task")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/tasks, "allocs/task")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/tasks, "ns/task")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// poster opens a connection and returns a function that sends a request over it and reads the
// answer, which must be of a status.
func (b *bundle) poster(t testing.TB, status int) func(request []byte) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	want := fmt.Appendf(nil, "HTTP/1.1 %d ", status)
	return func(request []byte) {
		if _, err := conn.Write(request); err != nil {
			t.Error(err)
		}
		length := 0
		for first := true; ; first = false {
			line, err := in.ReadSlice('\n')
			if err != nil || first && !bytes.HasPrefix(line, want) {
				t.Errorf("%s (%v)", line, err)
				return
			}
			if n, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				length, _ = strconv.Atoi(string(bytes.TrimSpace(n)))
			}
			if len(line) == len("\r\n") {
				break
			}
		}
		if _, err := in.Discard(length); err != nil {
			t.Error(err)
		}
	}
}
