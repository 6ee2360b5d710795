package httpapi

import (
	"bytes"
	"context"

	"github.com/gofiber/fiber/v2"

	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/share"
	"github.com/asyncflow/asyncflow/store"
)

// shortAnswer is the length up to which the memory of an answer isn't counted, in bytes.
const shortAnswer = 16 << 10

// changeAnswer bounds the answers to most changes, without what their requests have, in bytes; see
// changedTask.
const changeAnswer = 128 << 10

// longChangeAnswer bounds the answers to the other changes, without contexts.
const longChangeAnswer = 1 << 20

// changedContext is the longest context, result and list that a task has in the answer to a change,
// in bytes.
const changedContext = 8 << 10

// Whose share counts the answers to callers that act for no tenant, in words that are no tenant's
// name.
const (
	operatorsShare = "(operators)"
	strangersShare = "(no token)"
)

// answerShare returns whose share of memory an answer counts against.
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
// can't be refused. It is as much as the answer can have. Calls whose handlers do that themselves,
// or whose answers are short, need none.
func (s *Server) reserveAnswer(o *contract.Operation, c *fiber.Ctx, memory *share.Loan) error {
	if isRead(c) || o.ByHand || o.Access != contract.AccessToken {
		return nil
	}
	return memory.Take(min(s.mostOfAnswer(o, len(bodyOf(c))), s.cfg.Bodies.MaxPerTenant))
}

// mostOfAnswer returns how many bytes the answer to a change can have. Text from the request may be
// twice as long there.
func (s *Server) mostOfAnswer(o *contract.Operation, body int) int {
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

// changedTask is taskOut for the answer to a change, which has a bound: what is long is left out.
func (s *Server) changedTask(tenant string, t store.Task) Task {
	if len(t.Context) > changedContext {
		t.Context = nil
	}
	if len(t.Result) > changedContext {
		t.Result = nil
	}
	size := 0
	for _, d := range t.Dependencies {
		size += dependencyBytes + 6*len(d.Key) // a key may have control characters
	}
	if size > 4*changedContext {
		t.Dependencies = nil
	}
	out := s.taskOut(tenant, t)
	if len(out.WaitsBecause) > changedContext {
		out.WaitsBecause = ""
	}
	return out
}

// dependencyBytes is how many bytes a dependency has at most in an answer, without its key.
const dependencyBytes = 300

func isRead(c *fiber.Ctx) bool {
	return c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead
}

// lendAnswer counts the memory of a long answer until it is sent: a client that reads nothing
// keeps the answer in memory for the time of a write. Over the share or the node's limit it returns
// an error. The answer to a change counts in any case, because the client can't ask for that
// again; reserveAnswer has set its memory aside, or refused the change.
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

// sharedBody marks an answer whose body all callers share.
const sharedBody = "shared body"

// lentAnswer is the body of an answer whose memory is counted. The server closes it when it has
// sent it, or can't.
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
