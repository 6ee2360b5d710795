package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	. "github.com/asyncflow/asyncflow/client/api"
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
	asyncflow.CodeKeyReused:       http.StatusUnprocessableEntity,
	asyncflow.CodeTooLarge:        http.StatusRequestEntityTooLarge,
	asyncflow.CodeUnavailable:     http.StatusServiceUnavailable,
	asyncflow.CodeUncertain:       http.StatusServiceUnavailable,
	asyncflow.CodeInternal:        http.StatusInternalServerError,
}

// problemOf returns what a caller may know of an error.
func problemOf(err error) Problem {
	e := brief(knownError(err))
	status := cmp.Or(statusOfWire(err), statusOf[e.Code])
	p := Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: string(e.Code), Errors: e.Fields}
	if e.Code == asyncflow.CodeInternal {
		p.Detail = "something went wrong on our side; it is in the log"
		return p
	}
	p.Detail = e.Detail()
	if q := e.Quota; q != nil {
		p.Quota = ExceededQuota{Name: q.Name, Limit: q.Limit, Used: q.Used}
	}
	return p
}

// statusOfWire returns the status of what HTTP itself has a word for; else 0.
func statusOfWire(err error) int {
	var web *fiber.Error
	if errors.As(err, &web) && (web.Code == fiber.StatusRequestTimeout || web.Code == fiber.StatusRequestHeaderFieldsTooLarge) {
		return web.Code
	}
	return 0
}

// knownError returns err as one of ours: a fault that we don't know is internal.
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
		return &asyncflow.Error{Code: asyncflow.CodeTooLarge, Fields: []asyncflow.FieldError{{Field: "header", Message: fmt.Sprintf("is too large; the limit is %d bytes", headerLimit)}}}
	case fiber.StatusRequestTimeout:
		return asyncflow.Errorf(asyncflow.CodeInvalid, "the request did not come in time")
	case fiber.StatusInternalServerError:
		return &asyncflow.Error{Code: asyncflow.CodeInternal, Err: err}
	}
	return asyncflow.Errorf(asyncflow.CodeInvalid, "%s", web.Message)
}

// writeError answers with a problem document. It is fiber's error handler.
func (s *Server) writeError(c *fiber.Ctx, err error) error {
	err = s.explain(c, err)
	e := knownError(err)
	p := problemOf(err)
	var web *fiber.Error
	if errors.As(err, &web) && web.Code == fiber.StatusMethodNotAllowed {
		p.Status, p.Title, p.Detail = web.Code, http.StatusText(web.Code), "this path doesn't take "+c.Method()
	}
	if p.Status >= 500 {
		s.logFailure(c, p.Status, err)
	}
	p.RequestID = requestID(c)
	switch {
	case p.Status == http.StatusUnauthorized:
		c.Set(fiber.HeaderWWWAuthenticate, `Bearer realm="asyncflow"`)
	case p.Status == http.StatusServiceUnavailable, p.Status == http.StatusTooManyRequests:
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(wholeSeconds(e.RetryAfter)))
	}
	if err := c.Status(p.Status).JSON(p); err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, "application/problem+json")
	return nil
}

// explain finds out which field it was when a body could not be read into its
// type: a decoder says no more than that it was wrong.
func (s *Server) explain(c *fiber.Ctx, err error) error {
	var web *fiber.Error
	if !errors.As(err, &web) || web.Code != fiber.StatusBadRequest {
		return err
	}
	if found := s.checkBody(c); found != nil {
		return found
	}
	return bodyError(web.Message)
}

// checkBody returns what the contract has against a request, if it knows it.
func (s *Server) checkBody(c *fiber.Ctx) error {
	if o, values := s.contract.find(c.Method(), c.Path()); o != nil {
		return s.contract.check(c, o, values, bodyOf(c))
	}
	return nil
}

// bodyError names the field that a decoder complains of, where it names one.
func bodyError(message string) error {
	message = strings.TrimPrefix(message, "json: ")
	if rest, ok := strings.CutPrefix(message, `unknown field "`); ok {
		return asyncflow.InvalidField(strings.TrimSuffix(rest, `"`), "is not a known field")
	}
	if rest, ok := strings.CutPrefix(message, `field "`); ok {
		name, what, _ := strings.Cut(rest, `" `)
		return asyncflow.InvalidField(name, "%s", what)
	}
	return asyncflow.InvalidField("body", "%s", message)
}

// checkRetry holds the retry policy of a task against the contract, if it has one: in
// the type that it is read into, a limit of 0 looks like none.
func (ct *contract) checkRetry(raw []byte) error {
	if !bytes.Contains(raw, []byte(`"retry"`)) {
		return nil
	}
	var task struct{ Retry any }
	if json.Unmarshal(raw, &task) != nil || task.Retry == nil {
		return nil
	}
	err := ct.doc.Components.Schemas["RetryPolicy"].Value.VisitJSON(task.Retry, openapi3.MultiErrors())
	if fields := violations(err, "retry"); len(fields) > 0 {
		return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: fields}
	}
	return nil
}

// explainTask says what the contract has against one task of a batch.
func (ct *contract) explainTask(raw []byte, decodeErr error) error {
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return asyncflow.InvalidField("body", "%v", err)
	}
	err := ct.doc.Components.Schemas["NewTask"].Value.VisitJSON(doc, openapi3.MultiErrors())
	if fields := violations(err, ""); len(fields) > 0 {
		return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: fields}
	}
	return bodyError(decodeErr.Error())
}
