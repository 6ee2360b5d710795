package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// singleConnections is the number of connections over which tasks are submitted one by one.
const singleConnections = 64

// picked chooses the type of the next task, and returns it with a client of its tenant.
type picked func() (c *rig.Client, taskType string)

// submitOneType submits the next tasks of a type one by one.
func submitOneType(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int,
) (callTimes, error) {
	return submitEach(ctx, r, r.Take(t, tasks), tasks, func() (*rig.Client, string) {
		return r.API, t.Name
	})
}

// submitEach submits tasks one by one over many connections to the first node. first is the number
// of the first one. Its client is the lightest that there is, since it runs on the same cores.
func submitEach(
	ctx context.Context, r *rig.Rig, first, tasks int, pick picked,
) (took callTimes, err error) {
	host := &fasthttp.HostClient{
		Addr:     strings.TrimPrefix(r.API.Base, "http://"),
		MaxConns: singleConnections,
	}
	defer host.CloseIdleConnections()
	var mu sync.Mutex
	var taken atomic.Int64
	next := func() (n int, ok bool) {
		n = int(taken.Add(1)) - 1
		return first + n, n < tasks
	}
	g, ctx := errgroup.WithContext(ctx)
	for range singleConnections {
		g.Go(func() error {
			own, err := submitUntilNone(ctx, host, next, pick)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			return err
		})
	}
	return took, g.Wait()
}

// submitUntilNone submits one task after the other, until there is no next one.
func submitUntilNone(
	ctx context.Context, host *fasthttp.HostClient, next func() (int, bool), pick picked,
) (took callTimes, err error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + host.Addr + "/v1/tasks")
	req.Header.SetMethod(http.MethodPost)
	req.Header.SetContentType("application/json")
	var body []byte
	for ctx.Err() == nil {
		n, ok := next()
		if !ok {
			return took, nil
		}
		c, taskType := pick()
		req.Header.Set("Authorization", "Bearer "+c.Token)
		body = rig.AppendTask(body[:0], taskType, n, payload.Usual, "")
		req.SetBodyRaw(body)
		start := time.Now()
		if err := host.DoTimeout(req, resp, rig.Slack); err != nil {
			return took, err
		}
		took = append(took, time.Since(start))
		if resp.StatusCode() != http.StatusCreated {
			return took, fmt.Errorf("submit: HTTP %d: %.500s", resp.StatusCode(), resp.Body())
		}
	}
	return took, ctx.Err()
}

// callTimes is how long each of several calls took.
type callTimes []time.Duration

func (s callTimes) figures() (all report.Figures) {
	all.Add("submit_mean", "Submit, mean", "ms", s.mean())
	all.Add("submit_p99", "Submit, p99", "ms", s.percentile(99))
	return all
}

// mean returns the mean in ms.
func (s callTimes) mean() float64 {
	sum := time.Duration(0)
	for _, took := range s {
		sum += took
	}
	return float64(sum) / 1e6 / float64(len(s))
}

// percentile returns the p-th percentile in ms.
func (s callTimes) percentile(p float64) float64 {
	all := make([]float64, len(s))
	for i, took := range s {
		all[i] = float64(took) / 1e6
	}
	return report.Percentile(all, p)
}
