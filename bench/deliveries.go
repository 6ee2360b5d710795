package main

import (
	"context"
	"errors"
	"net/http"
)

// batches is a pipe whose endpoint gets up to 50 tasks in a POST.
var batches = shape{path: batchPath, endpoint: `,"batch":{"max_tasks":50,"max_wait":"20ms"}`}

// delivering returns the begin of a scenario that has tasks of a shape done: those of a
// round divided by part.
func delivering(s shape, part int) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		name := r.scenario.name
		p, err := r.registerShape(ctx, name, s)
		if why := unknownMember(s, err); why != "" {
			return nil, notAvailable(why)
		}
		if err == nil {
			err = r.warmUp(ctx, p)
		}
		if err != nil {
			return nil, err
		}
		r.countDead(r.bench, p)
		return func(ctx context.Context) (figures, error) {
			all, err := r.rate(ctx, p, r.tasks/part)
			if err == nil && name == postName {
				r.mostRate = all[0].value
			}
			return all, err
		}, nil
	}
}

// postName is the scenario whose rate is the maximum that others are measured at half of.
const postName = "post"

// unknownMember tells of an option of endpoints that the node doesn't have yet.
func unknownMember(s shape, err error) string {
	var r *refusal
	if s.endpoint != "" && errors.As(err, &r) && (r.status == http.StatusBadRequest || r.status == http.StatusUnprocessableEntity) {
		return "the node refuses endpoints with " + s.endpoint[1:]
	}
	return ""
}

// rate measures a passage, and what a task of it costs.
func (b *bench) rate(ctx context.Context, p *pipe, tasks int) (figures, error) {
	w, err := b.pass(ctx, p, tasks)
	if err != nil {
		return nil, err
	}
	p50, p99, err := b.db.settled(ctx, p.name, w.start)
	unit := "tasks/s"
	if p.stages > 1 {
		unit = "deliveries/s"
	}
	all := figures{
		{"rate", "Rate", unit, float64(tasks*p.stages) / w.elapsed.Seconds()},
		{"settled_p50", "Submit to settled, p50", "ms", p50},
		{"settled_p99", "Submit to settled, p99", "ms", p99},
	}
	return append(all, w.figures()[1:]...), err
}

// warmUpTasks open connections, fill caches and prepare statements.
const warmUpTasks = 2000

func (b *bench) warmUp(ctx context.Context, p *pipe) error {
	_, err := b.endToEnd(ctx, p, warmUpTasks)
	return err
}
