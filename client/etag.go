package client

import (
	"context"
	"net/http"
	"strings"
)

type (
	conditionKey struct{}
	etagKey      struct{}
)

// condition is a header of changes.
type condition struct{ name, value string }

// IfMatch returns a context for changes of something configured: they are made only if its ETag is
// this one, or if it exists and the ETag is "*". Otherwise the error is of the code
// precondition_failed.
func IfMatch(ctx context.Context, etag string) context.Context {
	return context.WithValue(ctx, conditionKey{}, condition{"If-Match", etag})
}

// IfNew returns a context for calls of PutTaskType, PutSchedule and PutAlerts: they only create it.
// Otherwise the error is of the code precondition_failed.
func IfNew(ctx context.Context) context.Context {
	return context.WithValue(ctx, conditionKey{}, condition{"If-None-Match", "*"})
}

// ReadETag returns a context for calls that read or change something configured: they set etag to
// its ETag, and to "" if there is none in the answer.
func ReadETag(ctx context.Context, etag *string) context.Context {
	return context.WithValue(ctx, etagKey{}, etag)
}

// addCondition adds the condition of a context to a change.
func addCondition(ctx context.Context, r *http.Request) {
	if c, ok := ctx.Value(conditionKey{}).(condition); ok && r.Method != http.MethodGet {
		r.Header.Set(c.name, c.value)
	}
}

// readETag reads the ETag of an answer if its context asks for it. A proxy that compresses answers
// makes it weak, and a weak one never matches; the server's own are all strong.
func readETag(ctx context.Context, resp *http.Response) {
	if etag, ok := ctx.Value(etagKey{}).(*string); ok {
		*etag = strings.TrimPrefix(resp.Header.Get("ETag"), "W/")
	}
}
