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

// What a task costs when a ratio is recorded: by its attempt, also by its submit in a call of its
// own, and also by its report. The CPU time includes the exports, and a receiver that reads them.
func BenchmarkTask(b *testing.B) {
	for _, ratio := range []string{"0", "0.01", "0.1"} {
		for calls, name := range []string{"attempt", "submit", "report"} {
			b.Run(name+"/"+ratio, func(b *testing.B) { benchmarkTask(b, ratio, calls) })
		}
	}
}

func benchmarkTask(b *testing.B, ratio string, calls int) {
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
	call := func() *tracing.Call {
		return tracer.Begin(tracing.Request{Method: "POST", Route: "/v1/tasks", Tenant: "acme"})
	}
	b.ReportAllocs()
	before := cpu()
	for b.Loop() {
		if calls > 0 {
			tasks[0] = asyncflow.NewTask{}
			c := call()
			c.Submits(tasks)
			c.Made(all[0].Lease.ID)
			c.End(201, "")
		}
		all[0].Lease.Seq++
		s.Send(b.Context(), all)
		if calls > 1 {
			c := call()
			c.Reports(all[0].Lease.ID, all[0].Lease.Seq)
			c.Settles(&all[0].Lease, asyncflow.OutcomeDone)
			c.End(200, "")
		}
	}
	b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// cpu returns the CPU time of the process: other programs don't count.
func cpu() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // it can't fail
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
