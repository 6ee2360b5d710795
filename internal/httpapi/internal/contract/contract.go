package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
)

// contract is openapi.yaml in a form that requests can be held against.
type contract struct {
	doc        *openapi3.T
	operations []*operation
}

// operation is one method on one path.
type operation struct {
	id       string
	segments []string // of the path; "{name}" matches anything
	route    *routers.Route
	access   access
	scopes   map[auth.Kind]auth.Scope // for accessToken: the kinds of tokens that it takes, each with the scope it must carry
	byHand   bool                     // its body is checked by its handler

	action     string // its word in the audit
	objectType string // what it is about
	audited    bool   // each call has an entry in the audit, and not only one that is denied
	status     int    // of the answer to a change; statusNew, if it made something new
	statusNew  int
}

// access is how a caller proves who it is.
type access int

const (
	accessToken      access = iota // a JWT
	accessCompletion               // the completion token of a delivery; the handler checks it
	accessOpen                     // not at all
)

// byHand are the calls that come in thousands. Their bodies are read straight into the
// types and checked by the rules of the domain: a generic pass over each context would
// double the cost of that (measured: 8 to 11 µs a task). When they can't be read, the
// contract is asked which field it was.
var byHand = []string{"submitTask", "submitTasks", "completeTask", "failTask"}

// document is openapi.yaml, read once for all servers of the process, since that takes
// a while. Nobody changes it.
var document = sync.OnceValues(func() (*openapi3.T, error) { return readDocument(asyncflow.OpenAPI) })

func readDocument(raw []byte) (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return doc, nil
}

func newContract(doc *openapi3.T) (*contract, error) {
	c := &contract{doc: doc}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			o := &operation{id: op.OperationID, segments: strings.Split(path, "/"), byHand: slices.Contains(byHand, op.OperationID),
				route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: op}}
			if err := o.readAccess(doc, op); err != nil {
				return nil, err
			}
			o.readAudit(op)
			c.operations = append(c.operations, o)
		}
	}
	// A fixed segment wins over a named one: /v1/tasks/batch before /v1/tasks/{id}.
	slices.SortFunc(c.operations, func(a, b *operation) int { return strings.Compare(a.route.Path, b.route.Path) })
	return c, nil
}

// Surface is a part of the API, served on an address of its own.
type Surface string

// The parts of the API; those for load balancers and people, such as /healthz, are in
// each.
const (
	SurfaceAll    Surface = ""
	SurfacePublic Surface = "public" // what is for tenants and workers
	SurfaceAdmin  Surface = "admin"  // what needs an operator's token
)

// keep drops what is not on a surface: it is answered like any path that isn't known.
func (c *contract) keep(surface Surface) {
	c.operations = slices.DeleteFunc(c.operations, func(o *operation) bool {
		admin := o.access == accessToken && o.scopes[auth.KindTenant] == ""
		switch {
		case surface == SurfacePublic:
			return admin
		case surface == SurfaceAdmin:
			return !admin && o.access != accessOpen
		}
		return false
	})
}

// Security schemes of openapi.yaml.
const (
	schemeTenant     = "bearerAuth"      // a tenant's token with the scope in x-scope
	schemeOperator   = "adminToken"      // an operator's token, whose scope is admin
	schemeCompletion = "completionToken" // that of a delivery
)

// readAccess reads who may call an operation: the security schemes that it lists, any
// one of which will do, else those of the whole document.
func (o *operation) readAccess(doc *openapi3.T, op *openapi3.Operation) error {
	security := doc.Security
	if op.Security != nil {
		security = *op.Security
	}
	if len(security) == 0 {
		o.access = accessOpen
		return nil
	}
	o.scopes = map[auth.Kind]auth.Scope{}
	for _, requirement := range security {
		for scheme := range requirement {
			if err := o.readScheme(scheme, op); err != nil {
				return fmt.Errorf("openapi.yaml: operation %s: %w", o.id, err)
			}
		}
	}
	if name, ok := op.Extensions["x-scope"]; ok && o.scopes[auth.KindTenant] == "" {
		return fmt.Errorf("openapi.yaml: operation %s has the x-scope %v, but takes no token of a tenant", o.id, name)
	}
	if o.access == accessCompletion && len(o.scopes) > 0 {
		return fmt.Errorf("openapi.yaml: operation %s takes a completion token beside another", o.id)
	}
	return nil
}

func (o *operation) readScheme(scheme string, op *openapi3.Operation) error {
	switch scheme {
	case schemeCompletion:
		o.access = accessCompletion
	case schemeOperator:
		o.scopes[auth.KindOperator] = auth.ScopeAdmin
	case schemeTenant:
		name, _ := op.Extensions["x-scope"].(string)
		scope := auth.Scope(name)
		if !scope.Known() || scope == auth.ScopeAdmin {
			return fmt.Errorf("x-scope is %q; it must be a scope of tenants (an operator's call has the security scheme %s)", name, schemeOperator)
		}
		o.scopes[auth.KindTenant] = scope
	default:
		return fmt.Errorf("the security scheme %q is not known", scheme)
	}
	return nil
}

// readAudit reads how an operation stands in the audit: all that manages has an entry,
// and all that changes something, but submits, which are the tasks' own story.
func (o *operation) readAudit(op *openapi3.Operation) {
	o.action, o.objectType = asyncflow.ActionOf(o.id)
	manages := o.scopes[auth.KindTenant] == auth.ScopeManage || o.scopes[auth.KindOperator] != ""
	o.audited = o.access == accessToken && (manages || o.route.Method != http.MethodGet && !o.byHand)
	for name := range op.Responses.Map() {
		if status, err := strconv.Atoi(name); err == nil && status < 300 {
			o.status = max(o.status, status)
		}
	}
	if o.status == http.StatusCreated && op.Responses.Value("200") != nil {
		o.status, o.statusNew = http.StatusOK, http.StatusCreated
	}
}

// aboveTenants tells whether an operation is for operators alone.
func (o *operation) aboveTenants() bool {
	return o.scopes[auth.KindOperator] != "" && o.scopes[auth.KindTenant] == ""
}

// find returns the operation of a request and the values of its path, or nil.
func (c *contract) find(method, path string) (*operation, map[string]string) {
	segments := strings.Split(path, "/")
	if method == http.MethodHead { // answered as GET, without the body
		method = http.MethodGet
	}
	for _, o := range c.operations {
		if o.route.Method != method || len(o.segments) != len(segments) {
			continue
		}
		if values, ok := o.match(segments); ok {
			return o, values
		}
	}
	return nil, nil
}

// methods returns which methods a path takes.
func (c *contract) methods(path string) []string {
	var all []string
	for _, o := range c.operations {
		if found, _ := c.find(o.route.Method, path); found != nil && !slices.Contains(all, o.route.Method) {
			all = append(all, o.route.Method)
		}
	}
	return all
}

func (o *operation) match(segments []string) (map[string]string, bool) {
	var values map[string]string
	for i, want := range o.segments {
		switch {
		case strings.HasPrefix(want, "{"):
			if values == nil {
				values = map[string]string{}
			}
			values[want[1:len(want)-1]] = segments[i]
		case want != segments[i]:
			return nil, false
		}
	}
	return values, true
}
