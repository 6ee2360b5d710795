package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
)

// statusOf is the one place where a code becomes an HTTP status.
var statusOf = map[asyncflow.Code]int{
	asyncflow.CodeInvalid:         http.StatusBadRequest,
	asyncflow.CodeUnauthenticated: http.StatusUnauthorized,
	asyncflow.CodeForbidden:       http.StatusForbidden,
	asyncflow.CodeSuspended:       http.StatusForbidden,
	asyncflow.CodeQuota:           http.StatusForbidden,
	asyncflow.CodeRateLimited:     http.StatusTooManyRequests,
	asyncflow.CodeNotFound:        http.StatusNotFound,
	asyncflow.CodeConflict:        http.StatusConflict,
	asyncflow.CodeDecided:         http.StatusGone,
	asyncflow.CodePrecondition:    http.StatusPreconditionFailed,
	asyncflow.CodeKeyReused:       http.StatusUnprocessableEntity,
	asyncflow.CodeDependency:      http.StatusUnprocessableEntity,
	asyncflow.CodeTooLarge:        http.StatusRequestEntityTooLarge,
	asyncflow.CodeUnavailable:     http.StatusServiceUnavailable,
	asyncflow.CodeUncertain:       http.StatusServiceUnavailable,
	asyncflow.CodeInternal:        http.StatusInternalServerError,
}

// writeError answers with a problem document. It is fiber's error handler.
func (s *Server) writeError(c *fiber.Ctx, err error) error {
	err = s.explain(c, err)
	e := knownError(err)
	p := problemOf(err)
	var web *fiber.Error
	if errors.As(err, &web) && web.Code == fiber.StatusMethodNotAllowed {
		p.Status, p.Title = web.Code, http.StatusText(web.Code)
		p.Detail = "this path doesn't take " + c.Method()
	}
	if p.Status >= 500 && !errors.Is(err, errDraining) {
		s.logFailure(c, p.Status, err)
	}
	p.RequestID = requestID(c)
	switch {
	case p.Status == http.StatusPreconditionFailed && e.ETag != "":
		c.Set(fiber.HeaderETag, e.ETag)
	case p.Status == http.StatusUnauthorized:
		c.Set(fiber.HeaderWWWAuthenticate, `Bearer realm="asyncflow"`)
	case p.Status == http.StatusServiceUnavailable, p.Status == http.StatusTooManyRequests:
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(ratelimit.WholeSeconds(e.RetryAfter)))
	}
	if err := c.Status(p.Status).JSON(p); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, problemType)
	return nil
}

// problemType is the media type of a problem document.
const problemType = "application/problem+json"

// problemOf returns what a caller may know of an error.
func problemOf(err error) api.Problem {
	e := brief(knownError(err))
	status := cmp.Or(statusOfWire(err), statusOf[e.Code])
	p := api.Problem{
		Type:   "about:blank",
		Title:  http.StatusText(status),
		Status: status,
		Code:   string(e.Code),
		Errors: e.Fields,
	}
	if e.Code == asyncflow.CodeInternal {
		p.Detail = "something went wrong on our side; it is in the log"
		return p
	}
	p.Detail = e.Detail()
	if q := e.Quota; q != nil {
		p.Quota = api.ExceededQuota{Name: q.Name, Limit: q.Limit, Used: q.Used}
	}
	return p
}

// statusOfWire returns the status of an error that has a status of its own in HTTP; else 0.
func statusOfWire(err error) int {
	var web *fiber.Error
	if !errors.As(err, &web) {
		return 0
	}
	switch web.Code {
	case fiber.StatusRequestTimeout, fiber.StatusRequestHeaderFieldsTooLarge:
		return web.Code
	}
	return 0
}

// knownError returns err as one of ours. An unknown error is CodeInternal.
func knownError(err error) *asyncflow.Error {
	var known *asyncflow.Error
	if errors.As(err, &known) {
		return known
	}
	var web *fiber.Error
	if !errors.As(err, &web) {
		return &asyncflow.Error{Code: asyncflow.CodeInternal, Err: err}
	}
	switch web.Code {
	case fiber.StatusNotFound:
		return asyncflow.Errorf(asyncflow.CodeNotFound, "there is no such path: see /openapi.yaml")
	case fiber.StatusRequestHeaderFieldsTooLarge:
		return tooLarge("header", fmt.Sprintf("is too large; the limit is %d bytes", headerLimit))
	case fiber.StatusRequestTimeout:
		return asyncflow.Errorf(asyncflow.CodeInvalid, "the request did not come in time")
	case fiber.StatusInternalServerError:
		return &asyncflow.Error{Code: asyncflow.CodeInternal, Err: err}
	}
	return asyncflow.Errorf(asyncflow.CodeInvalid, "%s", web.Message)
}

// tooLarge refuses a part of a request.
func tooLarge(part, message string) *asyncflow.Error {
	return &asyncflow.Error{
		Code:   asyncflow.CodeTooLarge,
		Fields: []asyncflow.FieldError{{Field: part, Message: message}},
	}
}
