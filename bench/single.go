package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"
)

const (
	singleConnections = 64
	singleWarmUp      = 2000 // submits
)

// beginSingle: one call for each task, over 64 connections, of a type that is paused:
// nothing else goes on. The client is the lightest that there is, as it runs on the same
// cores.
func beginSingle(ctx context.Context, r *rounds) (measure, error) {
	p, err := r.registerShape(ctx, "single", shape{})
	if err == nil {
		err = r.pause(ctx, p)
	}
	if err == nil {
		err = r.submitEach(ctx, p, singleWarmUp)
	}
	if err != nil {
		return nil, err
	}
	r.countDead(r.bench, p)
	return func(ctx context.Context) (figures, error) { return r.single(ctx, p, r.tasks) }, nil
}

func (b *bench) single(ctx context.Context, p *pipe, tasks int) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(tasks)*slowest+slack)
	defer cancel()
	if err := b.db.checkpoint(ctx); err != nil {
		return nil, err
	}
	before, err := b.reading(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := b.submitEach(ctx, p, tasks); err != nil {
		return nil, err
	}
	elapsed := time.Since(start)
	after, err := b.reading(ctx)
	all := figures{{"rate", "Rate", "tasks/s", float64(tasks) / elapsed.Seconds()}}
	all = append(all, writtenFigures(tasks, before.written, after.written)...)
	return append(all, cpuFigures(tasks, elapsed, after.usage.since(before.usage))...), err
}

// submitEach submits the next tasks one by one over many connections.
func (b *bench) submitEach(ctx context.Context, p *pipe, tasks int) error {
	first := b.take(p, tasks)
	host := &fasthttp.HostClient{Addr: strings.TrimPrefix(b.api.base, "http://"), MaxConns: singleConnections}
	defer host.CloseIdleConnections()
	var taken atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range singleConnections {
		g.Go(func() error {
			req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			defer fasthttp.ReleaseRequest(req)
			defer fasthttp.ReleaseResponse(resp)
			req.SetRequestURI(b.api.base + "/v1/tasks")
			req.Header.SetMethod(http.MethodPost)
			req.Header.SetContentType("application/json")
			req.Header.Set("Authorization", "Bearer "+b.api.token)
			var body []byte
			for ctx.Err() == nil {
				n := int(taken.Add(1)) - 1
				if n >= tasks {
					return nil
				}
				body = appendTask(body[:0], p.name, first+n, contextBytes, "")
				req.SetBodyRaw(body)
				if err := host.DoTimeout(req, resp, slack); err != nil {
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
