package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/share"
)

// shortAnswer is the length up to which the memory of an answer isn't counted, in bytes.
const shortAnswer = 16 << 10

// changeAnswer bounds the answers to most changes in bytes, apart from text of their requests; see
// changedTask.
const changeAnswer = 128 << 10

// longChangeAnswer bounds the answers that list all stages of a type, in bytes.
const longChangeAnswer = 1 << 20

// The owner of the share for answers to callers that act for no tenant, in words that are no
// tenant's name.
const (
	operatorsShare = "(operators)"
	strangersShare = "(no token)"
)

// answerShare returns the owner of the share of memory that an answer counts against.
func answerShare(ctx context.Context, o *contract.Operation) string {
	switch {
	case o.Access == contract.AccessOpen:
		return strangersShare
	case tenantOf(ctx) == "":
		return operatorsShare
	}
	return tenantOf(ctx)
}

type answerMemoryKey struct{}

// answerMemoryOf returns the loan for the answer of a call.
func answerMemoryOf(ctx context.Context) *share.Loan {
	return ctx.Value(answerMemoryKey{}).(*share.Loan)
}

// reserveAnswer sets memory aside for the answer to a change before it is made: afterwards it
// can't be refused. It takes the most that the answer can need. Calls with handlers that do so
// themselves, and calls with short answers, need none.
func (s *Server) reserveAnswer(o *contract.Operation, c *fiber.Ctx, memory *share.Loan) error {
	if isRead(c) || o.ByHand || o.Access != contract.AccessToken {
		return nil
	}
	return memory.Take(min(s.maxAnswer(o, len(bodyOf(c))), s.cfg.Bodies.MaxPerTenant))
}

// maxAnswer returns the most bytes of the answer to a change, by the length of its body. Text of
// the request may be twice as long in the answer.
func (s *Server) maxAnswer(o *contract.Operation, body int) int {
	switch o.ID {
	case "pauseTaskType", "resumeTaskType": // all stages
		return longChangeAnswer + 2*body
	case "pauseSchedule", "resumeSchedule":
		return changeAnswer + s.cfg.MaxContext
	case "testEndpoint", "redriveTask": // the worker's answer; the ids of dependents
		return 2*changeAnswer + 2*body
	}
	return changeAnswer + 2*body
}

func isRead(c *fiber.Ctx) bool {
	return c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead
}

// lendAnswer counts the memory of a long answer until it is sent: a client that reads nothing
// keeps the answer in memory for the time of a write. Over the share or the node's limit it returns
// an error. The answer to a change counts in any case, because the client can't ask for that again;
// reserveAnswer set its memory aside, or refused the change.
func (s *Server) lendAnswer(c *fiber.Ctx, memory *share.Loan) error {
	return lend(c, memory, isRead(c))
}

// lend is lendAnswer for an answer that may be refused or not.
func lend(c *fiber.Ctx, memory *share.Loan, refusable bool) error {
	r := c.Response()
	if r.IsBodyStream() || len(r.Body()) <= shortAnswer || c.Locals(sharedBody) != nil {
		return nil
	}
	doc := r.Body()
	switch more := cap(doc) - memory.Size(); {
	case more < 0:
		memory.Give(-more)
	case !refusable:
		memory.TakeAnyway(more)
	default:
		if err := memory.Take(more); err != nil {
			return err
		}
	}
	r.SetBodyStream(&lentAnswer{bytes.NewReader(doc), doc, memory.Move()}, len(doc))
	return nil
}

// sharedBody marks an answer with a body that all callers share.
const sharedBody = "shared body"

// lentAnswer is the body of an answer with counted memory. The server closes it after sending it,
// or if that fails.
type lentAnswer struct {
	*bytes.Reader
	doc    []byte
	memory share.Loan
}

// Close gives the memory back.
func (a *lentAnswer) Close() error {
	a.memory.End()
	return nil
}

// BodyConfig bounds the memory of a node for the bodies of requests, in bytes, and as much again
// for answers that are not sent yet. Bodies of up to 8 KiB don't count, because they are read into
// memory that their connection holds anyway. Answers of up to 16 KiB don't count either. Zero
// values are the defaults.
type BodyConfig struct {
	Max          int // for all tenants together; 0: 128 MiB
	MaxPerTenant int // for one tenant; 0: a quarter of Max
}

// defaultMaxBodyMemory is the default of BodyConfig.Max, in bytes.
const defaultMaxBodyMemory = 128 << 20

func (c BodyConfig) withDefaults() BodyConfig {
	c.Max = cmp.Or(c.Max, defaultMaxBodyMemory)
	c.MaxPerTenant = cmp.Or(c.MaxPerTenant, c.Max/4)
	return c
}

// check refuses limits that are smaller than the largest body, which could then never be read.
func (c BodyConfig) check(maxBody int) error {
	if c.MaxPerTenant < maxBody || c.Max < c.MaxPerTenant {
		return asyncflow.InvalidField("Bodies", "has %d bytes for one tenant and %d for all; "+
			"a tenant needs those of one body, %d, and all as many as one",
			c.MaxPerTenant, c.Max, maxBody)
	}
	return nil
}

// answerHeaders are what a handler adds to its answer, whether that is a success or an error.
type answerHeaders struct {
	allowance *ratelimit.Allowance
	etag      string
}

type answerHeadersKey struct{}

func headersOf(ctx context.Context) *answerHeaders {
	if h, ok := ctx.Value(answerHeadersKey{}).(*answerHeaders); ok {
		return h
	}
	return &answerHeaders{}
}

// setETag adds the ETag of what an answer shows.
func setETag(ctx context.Context, etag string) { headersOf(ctx).etag = etag }

// write sets the headers of an answer.
func (h *answerHeaders) write(c *fiber.Ctx) {
	if h.etag != "" {
		c.Set(fiber.HeaderETag, h.etag)
	}
	if h.allowance == nil {
		return
	}
	policy, limit := h.allowance.Headers()
	c.Set("RateLimit-Policy", policy)
	c.Set("RateLimit", limit)
}

// encode writes JSON for programs and people: without escapes for HTML. The last byte is a line
// feed.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// writeDocument answers with a JSON document, which must not change until it is sent.
func writeDocument(c *fiber.Ctx, status int, doc []byte) error {
	c.Status(status).Response().Header.SetContentType(fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(doc)
	return nil
}
