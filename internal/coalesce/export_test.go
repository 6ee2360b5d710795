package coalesce

import "context"

// Join is Get in two steps: the call joins a run, and what it returns waits for it.
func (r *Runs[T]) Join() func(context.Context) (T, error) {
	next := r.join()
	return func(ctx context.Context) (T, error) { return next.wait(ctx) }
}
