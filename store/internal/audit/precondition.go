package audit

import (
	"context"
	"slices"

	"github.com/asyncflow/asyncflow"
)

// Precondition is what must be so for a change of something configured to be made. It is checked
// in the transaction of the change, once the thing is locked: of two changes that were made from
// the same state, one fails. The zero value is none.
type Precondition struct {
	Match []string // the thing has one of these ETags; AnyETag: it exists
	New   bool     // the thing doesn't exist
}

// AnyETag stands for each ETag.
const AnyETag = "*"

type preconditionKey struct{}

// WithPrecondition returns a context for one change, which is made only if p holds.
func WithPrecondition(ctx context.Context, p Precondition) context.Context {
	return context.WithValue(ctx, preconditionKey{}, p)
}

// WithoutPrecondition returns the context for a change that belongs to another one.
func WithoutPrecondition(ctx context.Context) context.Context {
	return WithPrecondition(ctx, Precondition{})
}

// CheckPrecondition returns CodePrecondition unless the precondition of a context holds for a thing
// with an ETag; "" if there is none. A change that changes nothing needs no match: it may have been
// made before, and its answer lost (RFC 9110, section 13.1.1).
func CheckPrecondition(ctx context.Context, etag string, same bool) error {
	p, _ := ctx.Value(preconditionKey{}).(Precondition)
	failed := func(message string) error {
		return &asyncflow.Error{Code: asyncflow.CodePrecondition, ETag: etag, Message: message}
	}
	switch {
	case p.New && etag != "":
		return failed("it exists already, and If-None-Match allows only to create it")
	case len(p.Match) == 0, same, etag != "" && slices.Contains(p.Match, AnyETag):
		return nil
	case etag == "":
		return failed("it doesn't exist, and If-Match allows only to change it")
	case !slices.Contains(p.Match, etag):
		return failed("it has changed since it was read: its ETag is now " + etag)
	}
	return nil
}
