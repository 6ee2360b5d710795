package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/store"
)

type principalKey struct{}

// principalOf returns the verified caller; admit has put it there.
func principalOf(ctx context.Context) auth.Principal {
	p, _ := ctx.Value(principalKey{}).(auth.Principal)
	return p
}

type completionKey struct{}

// completionOf returns what the verified completion token of a call vouches for.
func completionOf(ctx context.Context) callbacks.Completion {
	c, _ := ctx.Value(completionKey{}).(callbacks.Completion)
	return c
}

// tenantOf returns the tenant that a verified caller acts for; "": none.
func tenantOf(ctx context.Context) string {
	if p, ok := ctx.Value(principalKey{}).(auth.Principal); ok {
		return p.Tenant
	}
	return completionOf(ctx).Tenant
}

// requestTime bounds what a call may take once its body is there, besides the wait that it
// asks for: a database that doesn't answer must not hold callers for ever.
const requestTime = 30 * time.Second

// admit lets a request pass to its handler when its caller may make it and it
// keeps to the contract. What the contract doesn't know reaches no handler.
func (s *Server) admit(c *fiber.Ctx) error {
	if err := checkFraming(&c.Request().Header); err != nil {
		c.Context().SetConnectionClose() // what comes after it isn't read as a request
		return err
	}
	o, values := s.contract.find(c.Method(), c.Path())
	if o == nil {
		return s.unknownRoute(c)
	}
	var err error
	if o.audited {
		err = s.audited(c, o, values)
	} else {
		err = s.pass(c, o, values, nil)
	}
	if err != nil {
		s.noteDenied(c, o, err)
	}
	return err
}

// pass is admit for a call whose operation is known. act, if there is one, is told who
// calls.
func (s *Server) pass(c *fiber.Ctx, o *operation, values map[string]string, act *store.Act) error {
	ctx, err := s.identify(c.UserContext(), c, o, values)
	if act != nil {
		ctx = s.actBy(ctx, act, o)
	}
	c.SetUserContext(ctx)
	if err != nil {
		return err
	}
	memory := s.bodies.lend(tenantOf(ctx))
	defer memory.end()
	if err := s.readBody(c, o, &memory); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeOf(c, o))
	defer cancel()
	headers := &answerHeaders{}
	c.SetUserContext(context.WithValue(ctx, answerHeadersKey{}, headers))
	if err := s.validate(c, o, values); err != nil {
		return err
	}
	defer headers.write(c)
	if err := c.Next(); err != nil {
		return err
	}
	return s.lendAnswer(c, tenantOf(ctx))
}

// timeOf returns what a call may take.
func timeOf(c *fiber.Ctx, o *operation) time.Duration {
	switch {
	case o.id == "submitTask" || o.id == "submitTasks":
		return store.SubmitPatience
	case o.id == "getTask" && c.Context().QueryArgs().Has("wait"):
		return requestTime + asyncflow.MaxWait
	}
	return requestTime
}

func (s *Server) unknownRoute(c *fiber.Ctx) error {
	if methods := s.contract.methods(c.Path()); len(methods) > 0 {
		c.Set(fiber.HeaderAllow, strings.Join(methods, ", "))
		return fiber.ErrMethodNotAllowed
	}
	return fiber.ErrNotFound
}

// identify proves who calls, and that the call is within its scopes. The context has the
// caller, once proven, also with an error.
func (s *Server) identify(ctx context.Context, c *fiber.Ctx, o *operation, values map[string]string) (context.Context, error) {
	if o.access == accessOpen {
		return ctx, nil
	}
	token, err := auth.Bearer(c.Get(fiber.HeaderAuthorization))
	if err != nil {
		return ctx, err
	}
	if o.access == accessCompletion {
		return s.identifyWorker(ctx, token, values["id"])
	}
	p, err := s.cfg.Verifier.Verify(ctx, token, time.Now())
	if err != nil {
		return ctx, err
	}
	ctx = context.WithValue(ctx, principalKey{}, p)
	if err := o.allow(p); err != nil {
		return ctx, err
	}
	if p.Kind == auth.KindOperator { // it acts for no tenant
		return ctx, nil
	}
	return ctx, s.checkTenant(ctx, p)
}

// allow returns nil if the operation is open to callers of p's kind and p carries
// the scope that it asks of them.
func (o *operation) allow(p auth.Principal) error {
	if scope, ok := o.scopes[p.Kind]; ok {
		return p.Require(scope)
	}
	for kind := range o.scopes { // the only one, as it isn't p's
		return p.RequireKind(kind)
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden, "this is open to nobody")
}

// identifyWorker proves that a worker was given the delivery that it reports on.
func (s *Server) identifyWorker(ctx context.Context, token, rawID string) (context.Context, error) {
	id, err := asyncflow.ParseTaskID(rawID)
	if err != nil {
		return ctx, err
	}
	completion, err := s.cfg.Keys.VerifyCompletion(token, id)
	return context.WithValue(ctx, completionKey{}, completion), err
}

// checkTenant refuses a caller whose tenant doesn't exist, whatever its token says, or is
// suspended; that doesn't keep an operator from resuming it.
func (s *Server) checkTenant(ctx context.Context, p auth.Principal) error {
	catalog := s.cfg.Store.Catalog
	t, ok := catalog.Tenant(p.Tenant)
	if !ok {
		ctx, cancel := context.WithTimeout(ctx, requestTime)
		defer cancel()
		err := catalog.RefreshTenant(ctx, p.Tenant)
		if t, ok = catalog.Tenant(p.Tenant); !ok && err != nil {
			return err
		}
		if !ok {
			return asyncflow.Errorf(asyncflow.CodeForbidden, "there is no tenant %q: an operator makes it with asyncflow tenants create", p.Tenant)
		}
	}
	switch {
	case !t.TokensFrom.IsZero() && p.IssuedAt.Add(tokenLeeway).Before(t.TokensFrom):
		return asyncflow.Errorf(asyncflow.CodeUnauthenticated, "the token is older than the tenant: it was issued to an earlier one of that name, or doesn't say when (claim iat)")
	case t.Suspended:
		return t.Refusal()
	}
	return nil
}

// tokenLeeway is how far the clock of a token's issuer may be behind.
const tokenLeeway = 30 * time.Second

// validate holds a request against the contract.
func (s *Server) validate(c *fiber.Ctx, o *operation, values map[string]string) error {
	if encoding := c.Get(fiber.HeaderContentEncoding); encoding != "" { // a small body could become a huge one
		return asyncflow.InvalidField("Content-Encoding", "is %q; bodies are taken as they are, not compressed", encoding)
	}
	wanted := o.route.Operation.RequestBody
	body := bodyOf(c) // not copied, as by c.Body
	if wanted == nil && len(body) > 0 && string(body) != "{}" {
		return errUnwantedBody
	}
	if n := asyncflow.Depth(body); n > maxBodyDepth {
		return asyncflow.InvalidField("body", "is nested %d deep; the limit is %d", n, maxBodyDepth)
	}
	if len(body) > 0 && !isJSON(c.Get(fiber.HeaderContentType)) {
		return asyncflow.InvalidField("Content-Type", "must be application/json")
	}
	if wanted != nil && len(body) == 0 {
		if wanted.Value.Required {
			return asyncflow.InvalidField("body", "is required")
		}
		c.Request().Header.SetContentType(fiber.MIMEApplicationJSON)
		c.Request().SetBodyString("{}")
		body = c.Request().Body()
	}
	if o.byHand {
		_, err := o.readQuery(c)
		if err == nil && o.id == "submitTask" { // in a batch each task has its own result
			err = s.contract.checkRetry(body)
		}
		return err
	}
	return s.contract.check(c, o, values, body)
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/json")
}

// check returns what the contract has against a request, as the offending fields.
func (ct *contract) check(c *fiber.Ctx, o *operation, values map[string]string, body []byte) error {
	query, err := o.readQuery(c)
	if err != nil {
		return err
	}
	req := &http.Request{Method: c.Method(), URL: &url.URL{Path: c.Path(), RawQuery: query.Encode()}, Header: http.Header{},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body))}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	err = openapi3filter.ValidateRequest(c.UserContext(), &openapi3filter.RequestValidationInput{
		Request: req, PathParams: values, QueryParams: query, Route: o.route,
		Options: &openapi3filter.Options{MultiError: true, SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	})
	if err == nil {
		return nil
	}
	out := &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: violations(err, "")}
	if len(out.Fields) == 0 {
		out.Message = err.Error()
	}
	return out
}

// readQuery returns the query parameters. It refuses those that the operation
// doesn't have, and any that is given twice.
func (o *operation) readQuery(c *fiber.Ctx) (url.Values, error) {
	query, err := url.ParseQuery(string(c.Request().URI().QueryString()))
	if err != nil {
		return nil, asyncflow.InvalidField("query", "can't be read")
	}
	for name, values := range query {
		if o.route.Operation.Parameters.GetByInAndName("query", name) == nil {
			return nil, asyncflow.InvalidField(name, "is not a parameter of this call")
		}
		if len(values) > 1 {
			return nil, asyncflow.InvalidField(name, "is given %d times", len(values))
		}
		if !utf8.ValidString(values[0]) || strings.ContainsRune(values[0], 0) {
			return nil, asyncflow.InvalidField(name, "must be UTF-8 without NUL")
		}
	}
	return query, nil
}
