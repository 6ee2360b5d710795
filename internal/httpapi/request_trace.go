package httpapi

import (
	"context"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/tracing"
)

type traceKey struct{}

// traceOf returns the record of a call; nil: calls aren't recorded.
func traceOf(ctx context.Context) *tracing.Call {
	c, _ := ctx.Value(traceKey{}).(*tracing.Call)
	return c
}

// traced runs a call of a proven caller, and records it as a span if it is sampled. Calls of
// strangers are never recorded: anybody can make them.
func (s *Server) traced(
	c *fiber.Ctx, o *contract.Operation, run func() error,
) (err error) {
	ctx := c.UserContext()
	call := s.cfg.Tracer.Begin(tracing.Request{
		Method:      c.Method(),
		Route:       o.Route.Path,
		Tenant:      tenantOf(ctx),
		Traceparent: c.Get("traceparent"),
		Tracestate:  c.Get("tracestate"),
	})
	if a := completionOf(ctx); a.Seq > 0 {
		call.Reports(a.Task, a.Seq)
	}
	c.SetUserContext(context.WithValue(ctx, traceKey{}, call))
	panicked := true
	defer func() {
		switch {
		case panicked:
			call.End(http.StatusInternalServerError, "panic")
		case err != nil:
			status := problemOf(err).Status
			call.End(status, failureOf(status))
		default:
			call.End(c.Response().StatusCode(), "")
		}
	}()
	err = run()
	panicked = false
	return err
}

// failureOf returns the kind of failure of an answer's status; "": the failure is the caller's.
func failureOf(status int) string {
	if status < http.StatusInternalServerError {
		return ""
	}
	return http.StatusText(status)
}
