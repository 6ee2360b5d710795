package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

type principalKey struct{}

// principalOf returns the verified caller; admit has put it there.
func principalOf(ctx context.Context) auth.Principal {
	p, _ := ctx.Value(principalKey{}).(auth.Principal)
	return p
}

type bearerKey struct{}

// bearerOf returns the bearer credential of a call that is not a JWT.
func bearerOf(ctx context.Context) string {
	token, _ := ctx.Value(bearerKey{}).(string)
	return token
}

// admit lets a request pass to its handler when its caller may make it and it
// keeps to the contract.
func (s *Server) admit(c *fiber.Ctx) error {
	o, values := s.contract.find(c.Method(), c.Path())
	if o == nil {
		return c.Next() // to fiber's 404 or 405
	}
	ctx, err := s.identify(c, o)
	if err != nil {
		return err
	}
	c.SetUserContext(ctx)
	if err := s.validate(c, o, values); err != nil {
		return err
	}
	return c.Next()
}

// identify proves who calls, and that the call is within its scopes.
func (s *Server) identify(c *fiber.Ctx, o *operation) (context.Context, error) {
	ctx := c.UserContext()
	if o.access == accessOpen {
		return ctx, nil
	}
	token, err := auth.Bearer(c.Get(fiber.HeaderAuthorization))
	if err != nil {
		return nil, err
	}
	if o.access == accessCompletion {
		return context.WithValue(ctx, bearerKey{}, token), nil
	}
	p, err := s.cfg.Verifier.Verify(token, time.Now())
	if err != nil {
		return nil, err
	}
	if err := p.Require(o.scope); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, principalKey{}, p), s.checkTenant(ctx, p.Tenant)
}

// checkTenant refuses a tenant that doesn't exist, whatever its token says.
func (s *Server) checkTenant(ctx context.Context, tenant string) error {
	catalog := s.cfg.Store.Catalog
	if catalog.HasTenant(tenant) {
		return nil
	}
	if err := catalog.Refresh(ctx); err != nil {
		return err
	}
	if !catalog.HasTenant(tenant) {
		return asyncflow.Errorf(asyncflow.CodeForbidden, "there is no tenant %q: an operator makes it with asyncflow tenants create", tenant)
	}
	return nil
}

// validate holds a request against the contract.
func (s *Server) validate(c *fiber.Ctx, o *operation, values map[string]string) error {
	if n := len(c.Body()); n > s.cfg.MaxBody {
		return &asyncflow.Error{Code: asyncflow.CodeTooLarge, Fields: []asyncflow.FieldError{
			{Field: "body", Message: fmt.Sprintf("is %d bytes; the limit is %d", n, s.cfg.MaxBody)}}}
	}
	if len(c.Body()) > 0 && !isJSON(c.Get(fiber.HeaderContentType)) {
		return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: []asyncflow.FieldError{{Field: "Content-Type", Message: "must be application/json"}}}
	}
	if wanted := o.route.Operation.RequestBody; wanted != nil && len(c.Body()) == 0 {
		if wanted.Value.Required {
			return asyncflow.InvalidField("body", "is required")
		}
		c.Request().Header.SetContentType(fiber.MIMEApplicationJSON)
		c.Request().SetBodyString("{}")
	}
	if o.bulk {
		return nil
	}
	return s.contract.check(c, o, values, c.Body())
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/json")
}

// check returns what the contract has against a request, as the offending fields.
func (ct *contract) check(c *fiber.Ctx, o *operation, values map[string]string, body []byte) error {
	query, err := url.ParseQuery(string(c.Request().URI().QueryString()))
	if err != nil {
		return asyncflow.InvalidField("query", "can't be read")
	}
	if name := o.unknownParameter(query); name != "" {
		return asyncflow.InvalidField(name, "is not a parameter of this call")
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

// unknownParameter returns a query parameter that the operation doesn't have, or "".
func (o *operation) unknownParameter(query url.Values) string {
	for name := range query {
		if o.route.Operation.Parameters.GetByInAndName("query", name) == nil {
			return name
		}
	}
	return ""
}
