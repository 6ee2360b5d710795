package httpapi

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/store"
)

// A request passes begin, frame, admit, and its handler. In between, admit finds the operation
// (contract), the caller (request_caller.go) and the body (request_body.go), and checks them
// (request_validation.go).

// requestTime bounds a call once its body is there, apart from the wait that it asks for: a
// database that doesn't answer must not keep callers forever.
const requestTime = 30 * time.Second

// begin sees a request first: it gives the request an id and turns panics into errors.
func (s *Server) begin(c *fiber.Ctx) error {
	requestID(c)
	return recovered(c.Next)
}

// frame refuses a request with framing that two servers in a row may read differently.
func (s *Server) frame(c *fiber.Ctx) error {
	if err := checkFraming(&c.Request().Header); err != nil {
		c.Context().SetConnectionClose() // what follows is not read as a request
		return err
	}
	return c.Next()
}

// admit passes a request to its handler if its caller may make it and it keeps to the contract.
// A request that the contract doesn't know reaches no handler.
func (s *Server) admit(c *fiber.Ctx) error {
	o, values := s.contract.Find(c.Method(), c.Path())
	if o == nil {
		return s.unknownRoute(c)
	}
	var err error
	if o.Audited {
		err = s.passAudited(c, o, values)
	} else {
		err = s.pass(c, o, values, nil)
	}
	if err != nil {
		s.countDenied(c, o, err)
	}
	return err
}

// pass is admit for a known operation. It writes the caller into call, unless that is nil.
func (s *Server) pass(
	c *fiber.Ctx, o *contract.Operation, values map[string]string, call *store.AuditedCall,
) error {
	ctx, err := s.identify(c.UserContext(), c, o, values)
	if call != nil {
		ctx = s.withCall(ctx, call, o)
	}
	c.SetUserContext(ctx)
	if err != nil {
		return err
	}
	identifyConnection(ctx, c)
	if s.cfg.Tracer == nil || o.Access == contract.AccessOpen {
		return s.handle(c, o, values)
	}
	return s.traced(c, o, func() error { return s.handle(c, o, values) })
}

// handle reads and checks the request of a proven caller, and passes it to its handler.
func (s *Server) handle(
	c *fiber.Ctx, o *contract.Operation, values map[string]string,
) error {
	ctx := c.UserContext()
	memory := s.bodies.Lend(tenantOf(ctx))
	defer memory.End()
	if err := s.readBody(c, o, &memory); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeOf(c, o))
	defer cancel()
	headers := &answerHeaders{}
	answer := s.answers.Lend(answerShare(ctx, o))
	defer answer.End()
	ctx = context.WithValue(ctx, answerMemoryKey{}, &answer)
	ctx = context.WithValue(ctx, bodyMemoryKey{}, &memory)
	c.SetUserContext(context.WithValue(ctx, answerHeadersKey{}, headers))
	if err := s.validate(c, o, values); err != nil {
		return err
	}
	if err := s.reserveAnswer(o, c, &answer); err != nil {
		return err
	}
	defer headers.write(c)
	if err := c.Next(); err != nil {
		return err
	}
	return s.lendAnswer(c, &answer)
}

// timeOf returns how long a call may take.
func timeOf(c *fiber.Ctx, o *contract.Operation) time.Duration {
	switch {
	case o.ID == "submitTask" && c.Context().QueryArgs().Has("wait"):
		return dispatcher.SubmitPatience + asyncflow.MaxWait
	case o.ID == "submitTask" || o.ID == "submitTasks":
		return dispatcher.SubmitPatience
	case o.ID == "claimTasks":
		return claimTime
	case o.ID == "getTask" && c.Context().QueryArgs().Has("wait"):
		return requestTime + asyncflow.MaxWait
	}
	return requestTime
}

func (s *Server) unknownRoute(c *fiber.Ctx) error {
	if methods := s.contract.Methods(c.Path()); len(methods) > 0 {
		c.Set(fiber.HeaderAllow, strings.Join(methods, ", "))
		return fiber.ErrMethodNotAllowed
	}
	return fiber.ErrNotFound
}

// maxPage is the largest and the default page of what a tenant configures, in entries.
const maxPage = 500

// pageLimit returns the limit of a page of what a tenant configures; 0 is the default.
func pageLimit(asked int) int { return cmp.Or(asked, maxPage) }

// defaultPage is the default page of all other lists, in entries.
const defaultPage = 50

// orDefaultPage returns the limit of a page of any other list; 0 is the default.
func orDefaultPage(asked int) int { return cmp.Or(asked, defaultPage) }

// requestIDKey is where a request keeps its id.
type requestIDKey struct{}

// requestID returns the id of a request, which is also in its answer: the caller's own if it is
// well formed, else a new one.
func requestID(c *fiber.Ctx) string {
	if id, ok := c.Locals(requestIDKey{}).(string); ok {
		return id
	}
	id := c.Get(fiber.HeaderXRequestID)
	if !wellFormed(id) {
		id = newRequestID()
	}
	c.Locals(requestIDKey{}, id)
	c.Set(fiber.HeaderXRequestID, id)
	return id
}

// newRequestID returns 128 random bits. They tell requests apart and need not be secret.
func newRequestID() string {
	var bits [16]byte
	binary.LittleEndian.PutUint64(bits[:], rand.Uint64())
	binary.LittleEndian.PutUint64(bits[8:], rand.Uint64())
	return hex.EncodeToString(bits[:])
}

// maxRequestID bounds an id that a caller gives, in bytes. Every JWT is longer.
const maxRequestID = 64

// wellFormed reports whether headers, logs and rows can hold an id without escapes.
func wellFormed(id string) bool {
	for _, b := range []byte(id) {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		case b == '-', b == '_', b == '.', b == ':', b == '=', b == '/', b == '+':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}

// panicked is the error of a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// recovered calls next and turns its panic into an error.
func recovered(next func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return next()
}

// logFailure writes the one line of a request that was answered with a 5xx, with the stack if the
// request panicked.
func (s *Server) logFailure(c *fiber.Ctx, status int, err error) {
	line := []any{
		"request_id", requestID(c),
		"method", c.Method(),
		"path", loggedPath(c.Path()),
		"status", status,
		"error", err,
	}
	if p := new(panicked); errors.As(err, &p) {
		line = append(line, "stack", string(p.stack))
	}
	s.log.Error("request failed", line...)
}

// loggedPath returns a path without the token of a link: anybody who knows it can decide.
func loggedPath(path string) string {
	if strings.HasPrefix(path, "/l/") {
		return "/l/…"
	}
	return path
}
