package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/share"
	"github.com/asyncflow/asyncflow/store"
)

// A submit may wait for the end of its task, as GET of a task does, and counts among the waiting
// calls of its tenant. A submit with the key of an earlier task is answered with that task: it may
// wait, too.

// longestWaitText bounds the text of a wait, in bytes, as the contract does.
const longestWaitText = 40

// submitWait returns how long a submit waits for the end of its task; 0: not at all.
func submitWait(c *fiber.Ctx, p auth.Principal) (time.Duration, error) {
	if len(c.Request().URI().QueryString()) == 0 {
		return 0, nil
	}
	text := string(c.Context().QueryArgs().Peek("wait"))
	if len(text) > longestWaitText {
		return 0, asyncflow.InvalidField("wait", "is %d bytes long; the limit is %d", len(text),
			longestWaitText)
	}
	wait, err := readWait(text)
	if err == nil && wait > 0 && !p.Has(auth.ScopeRead) {
		err = asyncflow.Errorf(asyncflow.CodeForbidden, "wait answers with the task and its "+
			"result: this needs the scope %q, which the token doesn't carry",
			string(auth.ScopeRead))
	}
	return wait, err
}

// takeWait takes a slot for the waiting calls of the caller's tenant, and returns how to give it
// back.
func (s *Server) takeWait(tenant string) (give func(), err error) {
	if err := s.streams.Take(tenant, 1); err != nil {
		return nil, err
	}
	return func() { s.streams.Give(tenant, 1) }, nil
}

// answerFinal waits for the end of a submitted task. The answer is the task or, if it isn't final
// in time or there is no memory for it, its id: the task is submitted all the same.
func (s *Server) answerFinal(
	c *fiber.Ctx, submitted store.Submitted, wait time.Duration,
) error {
	ctx := c.UserContext()
	c.Request().ResetBody() // nobody reads it any more, and the wait may be long
	bodyMemoryOf(ctx).End()
	short := func() error {
		return writeDocument(c, http.StatusAccepted, submittedLine(&submitted))
	}
	task, err := s.follow(ctx, principalOf(ctx).Tenant, submitted.ID, wait)
	if err != nil {
		s.log.Warn("can't follow a task that was submitted; its caller gets the id",
			"tenant", principalOf(ctx).Tenant, "task", submitted.ID.String(), "error", err)
		return short()
	}
	submitted.Stage = task.Stage
	submitted.Status = task.Status
	submitted.OrderTime = task.OrderTime
	if !task.Status.Final() || s.writeTask(c, task, submitted) != nil {
		return short()
	}
	return nil
}

// answerExisting answers a submit with the key of an earlier task with that task.
func (s *Server) answerExisting(c *fiber.Ctx, submitted store.Submitted) error {
	ctx := c.UserContext()
	task, err := s.cfg.Store.Task(ctx, principalOf(ctx).Tenant, submitted.ID)
	if err != nil {
		return err
	}
	return s.writeTask(c, task, submitted)
}

// writeTask answers a submit with its task, unless there is no memory for it. A caller that may not
// read tasks sees only how it stands.
func (s *Server) writeTask(c *fiber.Ctx, task store.Task, submitted store.Submitted) error {
	ctx := c.UserContext()
	out := s.wholeTask(principalOf(ctx).Tenant, task)
	if !principalOf(ctx).Has(auth.ScopeRead) {
		out = api.Task{ID: out.ID, Type: out.Type, Stage: out.Stage, Status: out.Status,
			OrderTime: out.OrderTime, CreatedAt: out.CreatedAt}
	}
	out.Existing = submitted.Existing
	out.Replaced = submitted.Replaced
	out.WaitsUntil = submitted.WaitsUntil
	doc, err := encode(out)
	if err != nil {
		return err
	}
	if len(doc) > shortAnswer {
		if err := answerMemoryOf(ctx).Take(cap(doc)); err != nil {
			return err
		}
	}
	return writeDocument(c, http.StatusOK, doc)
}

type bodyMemoryKey struct{}

// bodyMemoryOf returns the loan for the body of a call.
func bodyMemoryOf(ctx context.Context) *share.Loan {
	return ctx.Value(bodyMemoryKey{}).(*share.Loan)
}
