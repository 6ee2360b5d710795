package main

import "context"

// contexts returns the begin of a scenario with contexts of so many bytes, so many of them
// in a submit: the tasks of a round divided by part. Its node is a new one each round, so
// that its memory is its own.
func contexts(size, batch, part int) func(context.Context, *rounds) (measure, error) {
	return func(ctx context.Context, r *rounds) (measure, error) {
		side, err := r.side(ctx, r.scenario.name, "")
		if err != nil {
			return nil, err
		}
		tasks := r.tasks / part
		var p *pipe
		err = side.withNode(ctx, func(ctx context.Context) error {
			if err := side.makeTenant(ctx); err != nil {
				return err
			}
			p, err = side.registerShape(ctx, r.scenario.name, shape{size: size, batch: batch})
			return err
		})
		if err != nil {
			return nil, err
		}
		r.countDead(side, p)
		return func(ctx context.Context) (all figures, err error) {
			err = side.withNode(ctx, func(ctx context.Context) error {
				if _, err := side.endToEnd(ctx, p, tasks/10); err != nil { // a warm-up
					return err
				}
				if all, err = side.rate(ctx, p, tasks); err == nil {
					all = append(all, figure{"memory", "Memory of the node, at most", "MB", peakMemory(side.nodes[0].pid())})
				}
				return err
			})
			return all, err
		}, nil
	}
}
