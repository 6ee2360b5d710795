package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// single asks: how many tasks a second can clients submit one by one? The type is paused: nothing
// else goes on.
var single = scenario{
	"single", "Single submits alone, 64 connections", 1,
	beginSingle,
}

const (
	singleConnections = 64
	singleWarmUp      = 2000 // submits
)

func beginSingle(ctx context.Context, r *rounds) (measure, error) {
	t, err := r.Register(ctx, "single", rig.Shape{})
	if err == nil {
		err = r.Pause(ctx, t)
	}
	if err == nil {
		err = submitEach(ctx, r.Rig, t, singleWarmUp)
	}
	if err != nil {
		return nil, err
	}
	r.countDead(r.Rig, t)
	return func(ctx context.Context) (all report.Figures, err error) {
		ctx, cancel := context.WithTimeout(ctx, rig.Patience(r.tasks))
		defer cancel()
		meter, err := r.StartMeter(ctx)
		if err != nil {
			return nil, err
		}
		if err := submitEach(ctx, r.Rig, t, r.tasks); err != nil {
			return nil, err
		}
		cost, err := meter.Stop(ctx)
		all.Add("rate", "Rate", "tasks/s", cost.Rate(r.tasks))
		return append(all, cost.Figures(r.tasks)...), err
	}, nil
}

// submitEach submits the next tasks one by one over many connections. Its client is the lightest
// that there is, since it runs on the same cores.
func submitEach(ctx context.Context, r *rig.Rig, t *rig.TaskType, tasks int) error {
	first := r.Take(t, tasks)
	host := &fasthttp.HostClient{
		Addr:     strings.TrimPrefix(r.API.Base, "http://"),
		MaxConns: singleConnections,
	}
	defer host.CloseIdleConnections()
	var taken atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range singleConnections {
		g.Go(func() error {
			req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			defer fasthttp.ReleaseRequest(req)
			defer fasthttp.ReleaseResponse(resp)
			req.SetRequestURI(r.API.Base + "/v1/tasks")
			req.Header.SetMethod(http.MethodPost)
			req.Header.SetContentType("application/json")
			req.Header.Set("Authorization", "Bearer "+r.API.Token)
			var body []byte
			for ctx.Err() == nil {
				n := int(taken.Add(1)) - 1
				if n >= tasks {
					return nil
				}
				body = rig.AppendTask(body[:0], t.Name, first+n, payload.Usual, "")
				req.SetBodyRaw(body)
				if err := host.DoTimeout(req, resp, rig.Slack); err != nil {
					return err
				}
				if resp.StatusCode() != http.StatusCreated {
					return fmt.Errorf("submit: HTTP %d: %.500s", resp.StatusCode(), resp.Body())
				}
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}
