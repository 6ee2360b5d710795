package tracing_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/otlptest"
	"github.com/asyncflow/asyncflow/internal/tracing"
)

// What a task costs: a submit, an attempt and a report, of which a ratio is recorded. The CPU time
// has the exports, and a receiver that reads them.
func BenchmarkTask(b *testing.B) {
	for _, ratio := range []string{"0", "0.01", "0.1"} {
		b.Run(ratio, func(b *testing.B) {
			r := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
				_, _ = io.Copy(io.Discard, q.Body)
			}))
			defer r.Close()
			tracer, _ := start(b, &otlptest.Receiver{URL: r.URL}, map[string]string{
				"OTEL_TRACES_SAMPLER":     "parentbased_traceidratio",
				"OTEL_TRACES_SAMPLER_ARG": ratio})
			answer := outcomes(1, asyncflow.Outcome{Kind: asyncflow.OutcomeAccepted})
			s := tracing.NewSender(tracer, sends(func([]asyncflow.Delivery) []asyncflow.Outcome {
				return answer
			}))
			tasks := make([]asyncflow.NewTask, 1)
			all := deliveries("")
			b.ReportAllocs()
			before := cpu()
			for b.Loop() {
				tasks[0] = asyncflow.NewTask{}
				c := tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/tasks",
					Tenant: "acme"})
				c.Submits(tasks)
				c.Made(all[0].Lease.ID)
				c.End(201, "")
				all[0].Lease.Seq++
				s.Send(b.Context(), all)
				c = tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/tasks",
					Tenant: "acme"})
				c.Reports(all[0].Lease.ID, all[0].Lease.Seq)
				c.Settles(&all[0].Lease, asyncflow.OutcomeDone)
				c.End(200, "")
			}
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpu returns the CPU time of the process: other programs don't count.
func cpu() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // it can't fail
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
