package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// Request is what the contract checks of a request.
type Request struct {
	Operation *Operation
	Values    map[string]string // in the path
	Path      string
	Query     []byte // as it was sent
	Body      []byte
}

// Check returns which fields of a request the contract doesn't allow.
func (c *Contract) Check(ctx context.Context, r Request) error {
	o := r.Operation
	query, err := o.ReadQuery(r.Query)
	if err != nil {
		return err
	}
	err = openapi3filter.ValidateRequest(ctx, &openapi3filter.RequestValidationInput{
		Request: &http.Request{
			Method: o.Route.Method,
			URL:    &url.URL{Path: r.Path, RawQuery: query.Encode()},
			Header: http.Header{},
		},
		PathParams:  r.Values,
		QueryParams: query,
		Route:       o.Route,
		Options: &openapi3filter.Options{
			MultiError:          true,
			SkipSettingDefaults: true,
			ExcludeRequestBody:  true,
			AuthenticationFunc:  openapi3filter.NoopAuthenticationFunc,
		},
	})
	fields := append(faults(err, ""), o.checkBody(r.Body)...)
	switch {
	case len(fields) > 0:
		return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: fields}
	case err != nil:
		return &asyncflow.Error{Code: asyncflow.CodeInvalid, Message: err.Error()}
	}
	return nil
}

// checkBody returns the faults of a body.
func (o *Operation) checkBody(body []byte) []asyncflow.FieldError {
	wanted := o.Route.Operation.RequestBody
	if wanted == nil {
		return nil
	}
	if len(body) == 0 {
		if wanted.Value.Required {
			return []asyncflow.FieldError{{Field: "body", Message: "is required"}}
		}
		return nil
	}
	if o.Media() != mediaJSON {
		return nil
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return []asyncflow.FieldError{{Field: "body", Message: "is not valid JSON: " + err.Error()}}
	}
	return schemaFaults(wanted.Value.Content.Get(mediaJSON).Schema.Value, value, "")
}

const mediaJSON = "application/json"

// Media returns the media type of the bodies that the operation takes.
func (o *Operation) Media() string {
	if wanted := o.Route.Operation.RequestBody; wanted != nil {
		for media := range wanted.Value.Content {
			return media // there is one
		}
	}
	return mediaJSON
}

// ReadQuery parses the query parameters. It refuses parameters that are not the operation's, and
// ones that are given twice: the first by name. Pages take none, and ignore them.
func (o *Operation) ReadQuery(raw []byte) (url.Values, error) {
	if o.Page {
		return nil, nil
	}
	query, err := url.ParseQuery(string(raw))
	if err != nil {
		return nil, asyncflow.InvalidField("query", "can't be read")
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		if o.Route.Operation.Parameters.GetByInAndName("query", name) == nil {
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

// CheckRetry checks the retry policy of a task, if there is one. The type that the task is read
// into can't tell a limit of 0 from none.
func (c *Contract) CheckRetry(task []byte) error {
	if !bytes.Contains(task, []byte(`"retry"`)) {
		return nil
	}
	var doc struct{ Retry any }
	if json.Unmarshal(task, &doc) != nil || doc.Retry == nil {
		return nil
	}
	return c.checkSchema("RetryPolicy", doc.Retry, "retry")
}

// CheckTask checks one task of a batch.
func (c *Contract) CheckTask(task []byte) error {
	var doc any
	if err := json.Unmarshal(task, &doc); err != nil {
		return asyncflow.InvalidField("body", "%v", err)
	}
	return c.checkSchema("NewTask", doc, "")
}

// checkSchema checks a value against the schema of a name; at is the value's path in the body.
func (c *Contract) checkSchema(schema string, value any, at string) error {
	fields := schemaFaults(c.Doc.Components.Schemas[schema].Value, value, at)
	if len(fields) > 0 {
		return &asyncflow.Error{Code: asyncflow.CodeInvalid, Fields: fields}
	}
	return nil
}

func schemaFaults(s *openapi3.Schema, value any, at string) []asyncflow.FieldError {
	err := s.VisitJSON(prune(s, value), openapi3.VisitAsRequest(), openapi3.MultiErrors())
	return faults(err, at)
}

// Access is how the caller of an operation proves who it is.
type Access int

// The ways to prove who calls.
const (
	AccessToken      Access = iota // by a JWT
	AccessCompletion               // by the completion token of a delivery
	AccessOpen                     // not at all
)

// Security schemes of openapi.yaml.
const (
	schemeTenant     = "bearerAuth"      // a tenant's token with the scope in x-scope
	schemeOperator   = "adminToken"      // an operator's token, with the scope admin
	schemeCompletion = "completionToken" // the token of a delivery
)

// readAccess reads who may call an operation: the security schemes that the operation lists, any
// one is enough, or else the schemes of the whole document.
func (o *Operation) readAccess(doc *openapi3.T, op *openapi3.Operation) error {
	security := doc.Security
	if op.Security != nil {
		security = *op.Security
	}
	if len(security) == 0 {
		o.Access = AccessOpen
		return nil
	}
	o.Scopes = map[auth.Kind]auth.Scope{}
	for _, requirement := range security {
		for scheme := range requirement {
			if err := o.readScheme(scheme, op); err != nil {
				return fmt.Errorf("openapi.yaml: operation %s: %w", o.ID, err)
			}
		}
	}
	if name, ok := op.Extensions["x-scope"]; ok && o.Scopes[auth.KindTenant] == "" {
		return fmt.Errorf("openapi.yaml: operation %s has the x-scope %v, "+
			"but takes no token of a tenant", o.ID, name)
	}
	if o.Access != AccessCompletion || len(o.Scopes) == 0 {
		return nil
	}
	if o.Scopes[auth.KindOperator] != "" || o.Route.Method != http.MethodGet {
		return fmt.Errorf("openapi.yaml: operation %s takes a completion token beside another, "+
			"which only reads of tenants may", o.ID)
	}
	o.Access, o.Deliveries = AccessToken, true
	return nil
}

func (o *Operation) readScheme(scheme string, op *openapi3.Operation) error {
	switch scheme {
	case schemeCompletion:
		o.Access = AccessCompletion
	case schemeOperator:
		o.Scopes[auth.KindOperator] = auth.ScopeAdmin
	case schemeTenant:
		name, _ := op.Extensions["x-scope"].(string)
		scope := auth.Scope(name)
		if !scope.Known() || scope == auth.ScopeAdmin {
			return fmt.Errorf("x-scope is %q; it must be a scope of tenants "+
				"(an operator's call has the security scheme %s)", name, schemeOperator)
		}
		o.Scopes[auth.KindTenant] = scope
	default:
		return fmt.Errorf("the security scheme %q is not known", scheme)
	}
	return nil
}

// Allow returns nil if callers of p's kind may call the operation, and p's scopes include the scope
// that the operation asks of them.
func (o *Operation) Allow(p auth.Principal) error {
	if scope, ok := o.Scopes[p.Kind]; ok {
		return p.Require(scope)
	}
	for kind := range o.Scopes { // there is one only, as p's kind is not among them
		return p.RequireKind(kind)
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden, "this is open to nobody")
}

// OperatorsOnly reports whether only operators may call the operation.
func (o *Operation) OperatorsOnly() bool {
	return o.Scopes[auth.KindOperator] != "" && o.Scopes[auth.KindTenant] == ""
}
