package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// The two calls that submit tasks, and the two that report how a task ended, come in thousands a
// second. Their handlers are written by hand: generated ones copy the whole body and each header
// first.

// submitTask accepts one task.
func (s *Server) submitTask(c *fiber.Ctx) error {
	header, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var body api.NewTask
	if err := decodeBody(c, &body); err != nil {
		return err
	}
	ctx := c.UserContext()
	tenant := principalOf(ctx).Tenant
	wait, err := submitWait(c, principalOf(ctx))
	if err != nil {
		return err
	}
	task := taskIn(&body)
	switch {
	case len(header) > asyncflow.MaxKeyLength:
		return asyncflow.InvalidField("Idempotency-Key", "is %d bytes long; the limit is %d",
			len(header), asyncflow.MaxKeyLength)
	case header != "" && task.Options.Key != "" && header != task.Options.Key:
		return asyncflow.InvalidField("Idempotency-Key", "differs from key in the body")
	case header != "":
		task.Options.Key = header
	}
	err = s.checkTask(ctx, &task, s.cfg.Store.Clock.Now(), s.contextQuota(ctx))
	if err != nil {
		return err
	}
	if wait > 0 { // before the submit: a caller that can't wait submitted nothing
		give, err := s.takeWait(tenant)
		if err != nil {
			return err
		}
		defer give()
	}
	if err := s.limitSubmits(ctx, task); err != nil {
		return err
	}
	result := s.submitOne(ctx, tenant, task)
	switch {
	case result.Err != nil:
		return result.Err
	case wait > 0:
		return s.answerFinal(c, result, wait)
	case result.Replaced: // its context is the caller's own
		return writeDocument(c, http.StatusOK, submittedLine(&result))
	case result.Existing:
		return s.answerExisting(c, result)
	}
	return writeDocument(c, http.StatusCreated, submittedLine(&result))
}

// submitOne submits a task. The call may take longer than the submit.
func (s *Server) submitOne(
	ctx context.Context, tenant string, task asyncflow.NewTask,
) store.Submitted {
	ctx, cancel := context.WithTimeout(ctx, dispatcher.SubmitPatience)
	defer cancel()
	tasks := []asyncflow.NewTask{task}
	call := traceOf(ctx)
	call.Submits(tasks)
	submitted := s.cfg.Committer.Submit(ctx, tenant, tasks)
	s.giveBackChildren(ctx, tasks, submitted)
	call.Made(submitted[0].ID)
	return submitted[0]
}

// decodeBody decodes the body of a request without a copy of the whole: Decode keeps nothing of
// what it reads.
func decodeBody(c *fiber.Ctx, into any) error {
	if err := api.Decode(c.Request().Body(), into); err != nil {
		return fiber.NewError(fiber.StatusBadRequest, err.Error())
	}
	return nil
}

const idempotencyHeader = "Idempotency-Key"

// idempotencyKey returns the header Idempotency-Key, or "" if there is none.
func idempotencyKey(c *fiber.Ctx) (string, error) {
	const name = idempotencyHeader
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

// checkTask checks a new task against the rules of the domain, its tenant's quota for contexts in
// bytes, and its type's stages.
func (s *Server) checkTask(
	ctx context.Context, task *asyncflow.NewTask, now time.Time, quota int,
) error {
	if err := task.Validate(now, s.cfg.MaxContext); err != nil {
		return err
	}
	if err := checkContext(task.Context, quota); err != nil {
		return err
	}
	if err := s.checkLifetime(task.StartBy, task.EndBy); err != nil {
		return err
	}
	if err := checkConflict(ctx, task); err != nil {
		return err
	}
	if err := s.checkClaimRules(ctx, task.Type, task.Options.Claim); err != nil {
		return err
	}
	err := s.checkPriority(ctx, task.Type, task.Options.Priority)
	if err != nil || task.Options.OnFinal == nil {
		return err
	}
	if !principalOf(ctx).Has(auth.ScopeRead) {
		return asyncflow.Errorf(asyncflow.CodeForbidden, "on_final sends the result somewhere: "+
			"this needs the scope %q, which the token doesn't carry", string(auth.ScopeRead))
	}
	return s.findTarget(ctx, task.Options.OnFinal, false)
}

// checkConflict refuses a submit that may cancel another task, for a caller that may cancel none.
// Of one that may replace another task it notes who submits it.
func checkConflict(ctx context.Context, task *asyncflow.NewTask) error {
	operates := principalOf(ctx).Has(auth.ScopeOperate)
	if task.OnConflict == asyncflow.ConflictReplace {
		task.Operates = operates
		task.By = asyncflow.AuditText(principalOf(ctx).Subject, asyncflow.MaxAuditText)
	}
	if task.OnConflict != asyncflow.ConflictCancel || operates {
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden, "on_conflict cancel_running cancels tasks: "+
		"this needs the scope %q, which the token doesn't carry", string(auth.ScopeOperate))
}

// checkLifetime refuses deadlines of a task while a node runs that doesn't know them.
func (s *Server) checkLifetime(start, end asyncflow.Deadline) error {
	if start.IsZero() && end.IsZero() {
		return nil
	}
	return s.cfg.Store.CheckKnownLately(asyncflow.CapLifetimes)
}

// checkPriority refuses a list of priorities that hasn't one entry for each stage of the task
// type, as far as this node knows the type. For an unknown type, a later step returns the error.
func (s *Server) checkPriority(ctx context.Context, taskType string, p asyncflow.Priority) error {
	if len(p) < 2 { // the same for every stage
		return nil
	}
	t, err := s.cfg.Store.Catalog.Type(principalOf(ctx).Tenant, taskType)
	if err != nil {
		return nil
	}
	return t.CheckPriority(p)
}

// checkClaimRules refuses rules of who may claim tasks for a type from which nobody claims, as far
// as this node knows the type, and while a running node doesn't know them: it would hand the task
// to anyone.
func (s *Server) checkClaimRules(
	ctx context.Context, taskType string, r *asyncflow.ClaimRules,
) error {
	if r == nil || r.IsEmpty() {
		return nil
	}
	t, err := s.cfg.Store.Catalog.Type(principalOf(ctx).Tenant, taskType)
	if err != nil {
		return nil
	}
	if err := t.CheckClaimRules(r); err != nil {
		return err
	}
	return s.cfg.Store.CheckKnownLately(asyncflow.CapClaimRules)
}

func taskIn(t *api.NewTask) asyncflow.NewTask {
	task := asyncflow.NewTask{
		Type:       t.Type,
		Context:    t.Context,
		RunAt:      t.RunAt,
		Delay:      t.Delay,
		KeyWindow:  t.KeyWindow,
		OnConflict: t.OnConflict,
		MaxWait:    t.MaxWait,
		StartBy:    t.StartBy,
		EndBy:      t.EndBy,
		DependsOn:  t.DependsOn,
		Options: asyncflow.Options{Priority: t.Priority, Key: t.Key, FlowKey: t.FlowKey,
			ContextFrom: t.ContextFrom, OnFinal: onFinalIn(t.OnFinal), Claim: t.Claim,
			Labels: asyncflow.Labels{User: t.User, Tags: t.Tags, Metadata: t.Metadata,
				Trace: t.Trace}},
	}
	if !t.Retry.IsZero() {
		task.Options.Retry = &t.Retry
	}
	return task
}

// submittedOut returns the document of a task that was accepted.
func submittedOut(r store.Submitted) api.SubmittedTask {
	return api.SubmittedTask{
		ID:         r.ID.String(),
		Type:       r.ID.Type,
		Stage:      r.Stage,
		Status:     r.Status,
		OrderTime:  r.OrderTime,
		CreatedAt:  r.CreatedAt,
		Existing:   r.Existing,
		Replaced:   r.Replaced,
		WaitsUntil: r.WaitsUntil,
	}
}

// submittedLine returns the answer to a single submit.
func submittedLine(r *store.Submitted) []byte {
	return append(appendSubmitted(make([]byte, 0, submittedBytes), r), '\n')
}

// submittedBytes is about as many bytes as appendSubmitted appends.
const submittedBytes = 200

// appendSubmitted appends what package json would write of submittedOut. It is written by hand
// because there are many. By their rules, names and ids need no escapes.
func appendSubmitted(b []byte, r *store.Submitted) []byte {
	b = append(b, '{')
	if !r.CreatedAt.IsZero() {
		b = r.CreatedAt.AppendFormat(append(b, `"created_at":"`...), time.RFC3339Nano)
		b = append(b, `",`...)
	}
	if r.Existing {
		b = append(b, `"existing":true,`...)
	}
	b = r.ID.Append(append(b, `"id":"`...))
	if !r.OrderTime.IsZero() {
		b = r.OrderTime.AppendFormat(append(b, `","order_time":"`...), time.RFC3339Nano)
	}
	b = append(b, '"')
	if r.Replaced {
		b = append(b, `,"replaced":true`...)
	}
	b = append(append(b, `,"stage":"`...), r.Stage...)
	b = append(append(b, `","status":"`...), r.Status...)
	b = append(append(b, `","type":"`...), r.ID.Type...)
	if !r.WaitsUntil.IsZero() {
		b = r.WaitsUntil.AppendFormat(append(b, `","waits_until":"`...), time.RFC3339Nano)
	}
	return append(b, `"}`...)
}

// contextQuota returns the quota for contexts of the caller's tenant, in bytes. It is 0 if the
// quota isn't below the node's own limit.
func (s *Server) contextQuota(ctx context.Context) int {
	t, ok := s.cfg.Store.Catalog.Tenant(principalOf(ctx).Tenant)
	if !ok || t.Quotas.ContextBytes >= int64(s.cfg.MaxContext) {
		return 0
	}
	return int(t.Quotas.ContextBytes)
}

// checkContext refuses a context that is over a quota in bytes; 0: no quota.
func checkContext(doc json.RawMessage, quota int) error {
	if quota > 0 && len(doc) > quota {
		return asyncflow.ContextOverQuota(quota, len(doc))
	}
	return nil
}
