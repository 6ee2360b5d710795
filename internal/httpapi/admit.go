package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"bytes"
	"io"

	"github.com/getkin/kin-openapi/openapi3"
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
	if len(c.Body()) > 0 && !isJSON(c.Get(fiber.HeaderContentType)) {
		return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: []asyncflow.FieldError{{Field: "Content-Type", Message: "must be application/json"}}}
	}
	if o.bulk {
		if len(c.Body()) == 0 {
			return asyncflow.InvalidField("body", "is required")
		}
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

// violations turns the errors of the validator into fields; at is the path of
// the part that they are about.
func violations(err error, at string) []asyncflow.FieldError {
	var multi openapi3.MultiError
	var request *openapi3filter.RequestError
	var schema *openapi3.SchemaError
	switch {
	case errors.As(err, &multi) && isOuter(err):
		var all []asyncflow.FieldError
		for _, e := range multi {
			all = append(all, violations(e, at)...)
		}
		return all
	case errors.As(err, &request) && request.Parameter != nil:
		return []asyncflow.FieldError{{Field: request.Parameter.Name, Message: parameterMessage(request)}}
	case errors.As(err, &schema):
		return []asyncflow.FieldError{schemaViolation(schema, at)}
	case errors.As(err, &request):
		return []asyncflow.FieldError{{Field: "body", Message: bodyMessage(request)}}
	}
	return nil
}

func isOuter(err error) bool {
	_, isMulti := err.(openapi3.MultiError)
	if isMulti {
		return true
	}
	request, isRequest := err.(*openapi3filter.RequestError)
	if !isRequest || request.Parameter != nil {
		return false
	}
	_, isMulti = request.Err.(openapi3.MultiError)
	return isMulti
}

func parameterMessage(e *openapi3filter.RequestError) string {
	var schema *openapi3.SchemaError
	if errors.As(e.Err, &schema) {
		return schemaMessage(schema)
	}
	if e.Err != nil {
		return e.Err.Error()
	}
	return e.Reason
}

func bodyMessage(e *openapi3filter.RequestError) string {
	if e.Err == nil {
		return e.Reason
	}
	var parse *openapi3filter.ParseError
	if errors.As(e.Err, &parse) {
		return "is not valid JSON: " + parse.RootCause().Error()
	}
	return e.Err.Error()
}

// schemaViolation names the offending field as stages[1].timeout.
func schemaViolation(e *openapi3.SchemaError, at string) asyncflow.FieldError {
	field := at
	for _, part := range e.JSONPointer() {
		switch {
		case part != "" && strings.Trim(part, "0123456789") == "":
			field += "[" + part + "]"
		case field == "":
			field = part
		default:
			field += "." + part
		}
	}
	if field == "" {
		field = "body"
	}
	return asyncflow.FieldError{Field: field, Message: schemaMessage(e)}
}

func schemaMessage(e *openapi3.SchemaError) string {
	if e.SchemaField == "pattern" && e.Schema.Description != "" {
		text, _ := e.Value.(string)
		return fmt.Sprintf("is %q; it must be: %s", text, lowerFirst(strings.TrimSpace(e.Schema.Description)))
	}
	return e.Reason
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
