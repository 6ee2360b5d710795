package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// post asks: how fast are tasks delivered one by one, and what does a task cost?
var post = scenario{
	postName, "One POST per task, submits of 100", 3,
	delivering(rig.Shape{}, 1),
}

// delivering returns the begin of a scenario that delivers tasks of a shape. part divides the
// number of tasks of a round.
func delivering(s rig.Shape, part int) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		name := r.scenario.name
		t, err := r.Register(ctx, name, s)
		if why := unknownMember(s, err); why != "" {
			return nil, notAvailable(why)
		}
		if err != nil {
			return nil, err
		}
		if err = r.WarmUp(ctx, t); err != nil {
			return nil, err
		}
		r.countDead(r.Rig, t)
		return func(ctx context.Context) (report.Figures, error) {
			all, err := r.Measure(ctx, t, r.tasks/part)
			if err == nil && name == postName {
				r.mostRate = all[0].Value
			}
			return all, err
		}, nil
	}
}

// unknownMember says that the node refuses an option of endpoints, which an older one may not know.
func unknownMember(s rig.Shape, err error) string {
	var r *rig.Refusal
	if s.Endpoint == "" || !errors.As(err, &r) {
		return ""
	}
	if r.Status == http.StatusBadRequest || r.Status == http.StatusUnprocessableEntity {
		return "the node refuses endpoints with " + s.Endpoint[1:]
	}
	return ""
}

// postName is the scenario with the rate that is the maximum that others are measured at half of.
const postName = "post"
