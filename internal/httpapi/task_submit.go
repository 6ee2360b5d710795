package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	. "github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/store"
)

// The two calls that take tasks, and the two that report how they ended, come in thousands a
// second, and are served by hand: what is generated for the others copies the whole body and
// each header before it looks at them.

// submitTask accepts one task.
func (s *Server) submitTask(c *fiber.Ctx) error {
	header, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var body NewTask
	if err := readBody(c, &body); err != nil {
		return err
	}
	ctx, task := c.UserContext(), taskIn(&body)
	switch {
	case len(header) > asyncflow.MaxKeyLength:
		return asyncflow.InvalidField("Idempotency-Key", "is %d bytes long; the limit is %d", len(header), asyncflow.MaxKeyLength)
	case header != "" && task.Options.Key != "" && header != task.Options.Key:
		return asyncflow.InvalidField("Idempotency-Key", "is another than key in the body")
	case header != "":
		task.Options.Key = header
	}
	if err := task.Validate(s.cfg.Store.Clock.Now(), s.cfg.MaxContext); err != nil {
		return err
	}
	if err := checkContext(task.Context, s.contextQuota(ctx)); err != nil {
		return err
	}
	if err := s.checkPriority(ctx, task.Type, task.Options.Priority); err != nil {
		return err
	}
	if err := s.throttle(ctx, 1); err != nil {
		return err
	}
	result := s.cfg.Store.Submit(ctx, principalOf(ctx).Tenant, []asyncflow.NewTask{task})[0]
	switch {
	case result.Err != nil:
		return result.Err
	case result.Existing:
		return writeDocument(c, http.StatusOK, submittedLine(&result))
	}
	return writeDocument(c, http.StatusCreated, submittedLine(&result))
}

// submitTasks accepts a batch: each task has a result of its own.
func (s *Server) submitTasks(c *fiber.Ctx) error {
	var body NewTaskBatch
	if err := readBody(c, &body); err != nil {
		return err
	}
	ctx, items := c.UserContext(), body.Tasks
	if n := len(items); n < 1 || n > asyncflow.MaxBatch {
		return asyncflow.InvalidField("tasks", "must have 1 to %d entries", asyncflow.MaxBatch)
	}
	errs := make([]error, len(items))
	good := make([]asyncflow.NewTask, 0, len(items))
	now, quota := s.cfg.Store.Clock.Now(), s.contextQuota(ctx)
	for i := range items {
		task, err := s.itemIn(&items[i])
		if err == nil {
			err = task.Validate(now, s.cfg.MaxContext)
		}
		if err == nil {
			err = checkContext(task.Context, quota)
		}
		if err == nil {
			err = s.checkPriority(ctx, task.Type, task.Options.Priority)
		}
		if err == nil {
			good = append(good, task)
		}
		errs[i] = err
	}
	if err := s.throttle(ctx, len(good)); err != nil {
		return err
	}
	submitted := s.cfg.Store.Submit(ctx, principalOf(ctx).Tenant, good)
	doc := append(make([]byte, 0, len(items)*submittedBytes), `{"tasks":[`...)
	for i, err := range errs {
		result := store.Submitted{Err: err}
		if err == nil {
			result, submitted = submitted[0], submitted[1:]
		}
		if i > 0 {
			doc = append(doc, ',')
		}
		if doc, err = s.appendResult(doc, i, &result); err != nil {
			return err
		}
	}
	return writeDocument(c, http.StatusCreated, append(doc, "]}\n"...))
}

// appendResult appends what became of a task of a batch, by its place.
func (s *Server) appendResult(b []byte, i int, r *store.Submitted) ([]byte, error) {
	if r.Err == nil {
		return append(appendSubmitted(append(b, `{"task":`...), r), '}'), nil
	}
	s.logFault(r.Err)
	doc, err := encode(BatchResult{Error: itemProblem(i, r.Err)})
	return append(b, bytes.TrimSpace(doc)...), err
}

// checkPriority refuses a list of priorities that hasn't one entry for each stage of the task
// type. What this node knows of the type decides; a type that it doesn't know is told later.
func (s *Server) checkPriority(ctx context.Context, taskType string, p asyncflow.Priority) error {
	if len(p) < 2 { // for every stage alike
		return nil
	}
	t, err := s.cfg.Store.Catalog.Type(principalOf(ctx).Tenant, taskType)
	if err != nil {
		return nil
	}
	return t.CheckPriority(p)
}

// readBody reads the body of a request, without a copy of the whole: Decode keeps nothing
// of what it reads.
func readBody(c *fiber.Ctx, into any) error {
	if err := Decode(c.Request().Body(), into); err != nil {
		return fiber.NewError(fiber.StatusBadRequest, err.Error())
	}
	return nil
}

// writeDocument answers with a JSON document, which must not change until it is sent.
func writeDocument(c *fiber.Ctx, status int, doc []byte) error {
	c.Status(status).Response().Header.SetContentType(fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(doc)
	return nil
}

// idempotencyKey returns the header of that name, if there is one.
func idempotencyKey(c *fiber.Ctx) (string, error) {
	const name = "Idempotency-Key"
	switch values := c.Request().Header.PeekAll(name); len(values) {
	case 0:
		return "", nil
	case 1:
		if len(values[0]) == 0 {
			return "", asyncflow.InvalidField(name, "must not be empty")
		}
		return string(values[0]), nil
	default:
		return "", asyncflow.InvalidField(name, "is given %d times", len(values))
	}
}

// itemIn returns a task of a batch, or which of its fields can't be read.
func (s *Server) itemIn(item *BatchItem) (asyncflow.NewTask, error) {
	if item.Err == nil {
		return taskIn(&item.NewTask), s.contract.checkRetry(item.Raw)
	}
	return asyncflow.NewTask{}, s.contract.explainTask(item.Raw, item.Err)
}

// itemProblem names the fields of a task by its place in the batch.
func itemProblem(i int, err error) Problem {
	p := problemOf(err)
	p.Errors = slices.Clone(p.Errors) // several tasks may share an error
	for n, f := range p.Errors {
		if p.Errors[n].Field = fmt.Sprintf("tasks[%d]", i); f.Field != "body" {
			p.Errors[n].Field += "." + f.Field
		}
	}
	return p
}

func (s *Server) logFault(err error) {
	if asyncflow.CodeOf(err) == asyncflow.CodeInternal {
		s.log.Error("submit failed", "error", err)
	}
}

func taskIn(t *NewTask) asyncflow.NewTask {
	task := asyncflow.NewTask{Type: t.Type, Context: t.Context, RunAt: t.RunAt, Delay: t.Delay, KeyWindow: t.KeyWindow,
		Options: asyncflow.Options{Priority: t.Priority, Key: t.Key, FlowKey: t.FlowKey}}
	if !t.Retry.IsZero() {
		task.Options.Retry = &t.Retry
	}
	return task
}

// submittedOut is what the API tells of a task that was accepted.
func submittedOut(r store.Submitted) SubmittedTask {
	return SubmittedTask{ID: r.ID.String(), Type: r.ID.Type, Stage: r.Stage, Status: r.Status, OrderTime: r.OrderTime, Existing: r.Existing}
}

// submittedLine returns the answer to a single submit.
func submittedLine(r *store.Submitted) []byte {
	return append(appendSubmitted(make([]byte, 0, submittedBytes), r), '\n')
}

// submittedBytes is about what appendSubmitted appends.
const submittedBytes = 200

// appendSubmitted appends what submittedOut returns, as package json would write it: by hand
// as there are many. Names and ids need no escapes by their rules.
func appendSubmitted(b []byte, r *store.Submitted) []byte {
	b = append(b, '{')
	if r.Existing {
		b = append(b, `"existing":true,`...)
	}
	b = r.ID.Append(append(b, `"id":"`...))
	if !r.OrderTime.IsZero() {
		b = r.OrderTime.AppendFormat(append(b, `","order_time":"`...), time.RFC3339Nano)
	}
	b = append(append(b, `","stage":"`...), r.Stage...)
	b = append(append(b, `","status":"`...), r.Status...)
	b = append(append(b, `","type":"`...), r.ID.Type...)
	return append(b, `"}`...)
}
