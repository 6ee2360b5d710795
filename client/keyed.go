package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
)

// keyedSubmit is a submit whose tasks all have keys: trying it again does no harm. Its
// context holds it.
type keyedSubmit struct {
	uncertain bool // one of its tries may have had its effect
}

// keyed returns a context for a submit that may be tried again if all tasks have keys; else
// ctx, and nil.
func keyed(ctx context.Context, tasks ...NewTask) (context.Context, *keyedSubmit) {
	if slices.ContainsFunc(tasks, func(t NewTask) bool { return t.Key == "" }) {
		return ctx, nil
	}
	k := &keyedSubmit{}
	return context.WithValue(ctx, keyedSubmit{}, k), k
}

// note remembers whether a try may have had its effect. The answer can still be read.
func (k *keyedSubmit) note(r *http.Response, err error) {
	switch {
	case err != nil:
		k.uncertain = k.uncertain || Uncertain(&ConnectionError{Err: err})
	case r.StatusCode == http.StatusServiceUnavailable:
		body, _ := io.ReadAll(io.LimitReader(r.Body, maxProblem)) // what breaks off says nothing
		r.Body.Close()
		r.Body = io.NopCloser(bytes.NewReader(body))
		k.uncertain = k.uncertain || Uncertain(ErrorOf(r, body))
	}
}

// result returns the error of the last try, so that Uncertain knows of those before.
func (k *keyedSubmit) result(err error) error {
	if k == nil || err == nil || !k.uncertain || Uncertain(err) {
		return err
	}
	return uncertainError{err}
}

// uncertainError is what the last try came to, after one that may have had its effect.
type uncertainError struct{ error }

func (e uncertainError) Unwrap() error { return e.error }
