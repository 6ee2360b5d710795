package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
	"github.com/asyncflow/asyncflow/store"
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
	asyncflow.CodeTaskOver:        http.StatusConflict,
	asyncflow.CodeErased:          http.StatusConflict,
	asyncflow.CodeExpired:         http.StatusConflict,
	asyncflow.CodePrecondition:    http.StatusPreconditionFailed,
	asyncflow.CodeKeyReused:       http.StatusUnprocessableEntity,
	asyncflow.CodeDependency:      http.StatusUnprocessableEntity,
	asyncflow.CodeNextStage:       http.StatusUnprocessableEntity,
	asyncflow.CodeSpawn:           http.StatusUnprocessableEntity,
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

// statusOfWire returns the status of an error with a status of its own in HTTP; else 0.
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

// knownError returns err as one of ours. An unknown error is CodeInternal. A commit that may be
// missing on the standby is CodeUncertain, whatever it was for.
func knownError(err error) *asyncflow.Error {
	var known *asyncflow.Error
	if errors.As(err, &known) {
		if known.Code == asyncflow.CodeUnavailable && store.IsNotReplicated(err) {
			return uncertain(err)
		}
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

// The bounds of what an answer says of a fault, in bytes.
const (
	maxFaultName = 200  // the name of the field
	maxFaultText = 1000 // what is wrong with it

	// maxFaults is for all of them, as JSON: an answer that says what is wrong is always short.
	maxFaults = shortAnswer / 2
)

// brief returns an error with as much of it as an answer shows: of many faults the first
// contract.MaxFaults, and one more that says there are others.
func brief(e *asyncflow.Error) *asyncflow.Error {
	const limit = contract.MaxFaults
	short := *e
	short.Message = shorten(e.Message, maxFaultText)
	short.Fields = nil
	size := 0
	for _, f := range e.Fields[:min(len(e.Fields), limit)] {
		one := asyncflow.FieldError{
			Field:   shorten(f.Field, maxFaultName),
			Message: shorten(f.Message, maxFaultText),
		}
		if size += encodedSize(one); size > maxFaults {
			break
		}
		short.Fields = append(short.Fields, one)
	}
	if n := len(short.Fields); len(e.Fields) > n {
		short.Fields = append(short.Fields, asyncflow.FieldError{
			Field: "body", Message: fmt.Sprintf("has more faults than these %d", n)})
	}
	return &short
}

// encodedSize returns how long a fault is as JSON, in bytes: an escape is six times as long as
// what it stands for.
func encodedSize(f asyncflow.FieldError) int {
	doc, err := encode(f)
	if err != nil { // there are two strings in it
		return maxFaults
	}
	return len(doc)
}

// shorten returns the first bytes of a text, up to a limit, and cuts no character in half.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// explain names the field when a body could not be read into its type: the contract knows more
// than the decoder.
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

// explainTask is explain for one task of a batch.
func (s *Server) explainTask(raw []byte, err error) error {
	if found := s.contract.CheckTask(raw); found != nil {
		return found
	}
	return bodyError(err.Error())
}

// bodyError turns the message of a decoder into an error that names the field, if the message
// names one.
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
