package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
)

// keyedSubmit is a submit of tasks that all have keys, so that a retry does no harm. It travels in
// the context to worthRetrying.
type keyedSubmit struct {
	uncertain bool // one of its tries may have taken effect
}

// keyed returns a context for a submit that may be retried, if all tasks have keys; otherwise it
// returns ctx and nil.
func keyed(ctx context.Context, tasks ...NewTask) (context.Context, *keyedSubmit) {
	if slices.ContainsFunc(tasks, func(t NewTask) bool { return t.Key == "" }) {
		return ctx, nil
	}
	k := &keyedSubmit{}
	return context.WithValue(ctx, keyedSubmit{}, k), k
}

// note records whether a try may have taken effect. The answer can still be read afterwards.
func (k *keyedSubmit) note(r *http.Response, err error) {
	switch {
	case err != nil:
		k.uncertain = k.uncertain || Uncertain(&ConnectionError{Err: err})
	case isPassingStatus(r.StatusCode):
		body, _ := io.ReadAll(io.LimitReader(r.Body, maxProblem)) // a body that breaks off has no say
		r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(body))
		k.uncertain = k.uncertain || Uncertain(ErrorOf(r, body))
	}
}

// result returns the error of the last try. If an earlier try may have taken effect, Uncertain
// reports so for it.
func (k *keyedSubmit) result(err error) error {
	if k == nil || err == nil || !k.uncertain || Uncertain(err) {
		return err
	}
	return uncertainError{err}
}

// uncertainError is the error of the last try, after one that may have taken effect.
type uncertainError struct{ error }

func (e uncertainError) Unwrap() error { return e.error }
