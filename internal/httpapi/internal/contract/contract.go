// Package contract checks requests against openapi.yaml. It finds the operation of a request, who
// may call it, and what is wrong with the request's parameters and body.
package contract

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/openapi"
)

// Contract is openapi.yaml, ready to check requests.
type Contract struct {
	Doc        *openapi3.T
	Operations []*Operation
}

// Operation is one method on one path.
type Operation struct {
	ID     string
	Route  *routers.Route
	Access Access
	Scopes map[auth.Kind]auth.Scope // for AccessToken: the scope that each kind of token must carry
	// Deliveries reports whether an AccessToken may also be the completion token of a delivery.
	Deliveries bool
	ByHand     bool // its handler checks the body
	// Page reports whether people come here by a link in a mail: mail programs add parameters to
	// links.
	Page bool

	Action     string // the operation's word in the audit
	ObjectType string // what the operation is about
	Audited    bool   // every call leaves an entry in the audit, not only a denied one
	Status     int    // of the answer to a change
	StatusNew  int    // of the answer to a change that made something new

	segments []string // of the path; "{name}" matches anything
}

// byHand are the calls that come in thousands. Their bodies are read straight into the types and
// checked by the rules of the domain: a generic pass over each context would double the cost
// (measured: 8 to 11 µs a task). Only when a body can't be read does the contract name the field.
// Pages answer with pages what is wrong.
var byHand = []string{"submitTask", "submitTasks", "completeTask", "failTask",
	"heartbeat", "reportProgress", "claimTasks", "readInput", "readOutput", "showLink", "decideLink"}

// New returns the contract with the operations that keep keeps.
func New(keep func(*Operation) bool) (*Contract, error) {
	doc, err := openapi.Document()
	if err != nil {
		return nil, err
	}
	c, err := newContract(doc)
	if err != nil {
		return nil, err
	}
	c.Operations = slices.DeleteFunc(c.Operations, func(o *Operation) bool { return !keep(o) })
	return c, nil
}

func newContract(doc *openapi3.T) (*Contract, error) {
	c := &Contract{Doc: doc}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			o := &Operation{
				ID:       op.OperationID,
				ByHand:   slices.Contains(byHand, op.OperationID),
				Page:     slices.Contains(op.Tags, "links"),
				segments: strings.Split(path, "/"),
				Route: &routers.Route{
					Spec: doc, Path: path, PathItem: item, Method: method, Operation: op,
				},
			}
			if err := o.readAccess(doc, op); err != nil {
				return nil, err
			}
			o.readAudit(op)
			c.Operations = append(c.Operations, o)
		}
	}
	// A fixed segment wins over a named one: /v1/tasks/batch before /v1/tasks/{id}.
	slices.SortFunc(c.Operations, func(a, b *Operation) int {
		return strings.Compare(a.Route.Path, b.Route.Path)
	})
	return c, nil
}

// readAudit reads how the audit names an operation, and whether it lists every call: it does for
// calls that manage something, and for calls that change something. Submits, signals and claims are
// the exception, because the tasks themselves tell of them.
func (o *Operation) readAudit(op *openapi3.Operation) {
	o.Action, o.ObjectType = asyncflow.ActionOf(o.ID)
	manages := o.Scopes[auth.KindTenant] == auth.ScopeManage || o.Scopes[auth.KindOperator] != ""
	changes := o.Route.Method != http.MethodGet && !o.ByHand && o.ID != "sendSignal"
	o.Audited = o.Access == AccessToken && (manages || changes)
	for name := range op.Responses.Map() {
		if status, err := strconv.Atoi(name); err == nil && status < 300 {
			o.Status = max(o.Status, status)
		}
	}
	if o.Status == http.StatusCreated && op.Responses.Value("200") != nil {
		o.Status, o.StatusNew = http.StatusOK, http.StatusCreated
	}
}

// Find returns the operation of a request and the values in its path, or nil.
func (c *Contract) Find(method, path string) (*Operation, map[string]string) {
	if method == http.MethodHead { // answered like GET, without the body
		method = http.MethodGet
	}
	segments := strings.Split(path, "/")
	for _, o := range c.Operations {
		if o.Route.Method != method || len(o.segments) != len(segments) {
			continue
		}
		if values, ok := o.match(segments); ok {
			return o, values
		}
	}
	return nil, nil
}

// Methods returns the methods that a path takes.
func (c *Contract) Methods(path string) []string {
	var all []string
	segments := strings.Split(path, "/")
	for _, o := range c.Operations {
		if len(o.segments) != len(segments) || slices.Contains(all, o.Route.Method) {
			continue
		}
		if _, ok := o.match(segments); ok {
			all = append(all, o.Route.Method)
		}
	}
	return all
}

func (o *Operation) match(segments []string) (map[string]string, bool) {
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

// prune removes most of what a schema doesn't allow from a JSON value: of an array or a map that is
// too long all but one entry too many, and of unknown fields all but MaxFaults and one. The
// validator makes an error of some 450 bytes for each fault, and there can be 400,000 faults in a
// body of 1 MB. A value that the schema doesn't allow stays so, with the faults that an answer
// names.
func prune(s *openapi3.Schema, value any) any {
	for _, ref := range s.AllOf {
		value = prune(ref.Value, value)
	}
	if one := onlySchemaFor(value, slices.Concat(s.OneOf, s.AnyOf)); one != nil {
		value = prune(one, value)
	}
	switch v := value.(type) {
	case []any:
		return pruneArray(s, v)
	case map[string]any:
		pruneObject(s, v)
	}
	return value
}

// onlySchemaFor returns the one of the schemas that is for the type of value. If there are several
// it returns nil: a value that one of them doesn't allow, another may allow.
func onlySchemaFor(value any, schemas openapi3.SchemaRefs) (only *openapi3.Schema) {
	name := openapi3.TypeObject
	if _, ok := value.([]any); ok {
		name = openapi3.TypeArray
	}
	for _, ref := range schemas {
		if ref.Value.Type != nil && !ref.Value.Type.Is(name) {
			continue
		}
		if only != nil {
			return nil
		}
		only = ref.Value
	}
	return only
}

func pruneArray(s *openapi3.Schema, array []any) []any {
	if s.MaxItems != nil && uint64(len(array)) > *s.MaxItems {
		array = array[:*s.MaxItems+1]
	}
	if s.Items != nil {
		for i := range array {
			array[i] = prune(s.Items.Value, array[i])
		}
	}
	return array
}

func pruneObject(s *openapi3.Schema, object map[string]any) {
	for name, ref := range s.Properties {
		if value, ok := object[name]; ok {
			object[name] = prune(ref.Value, value)
		}
	}
	if most := maxUnnamedFields(s); len(object) > len(s.Properties)+most {
		var others []string
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if s.Properties[name] == nil {
				others = append(others, name)
			}
		}
		for _, name := range others[min(most, len(others)):] {
			delete(object, name)
		}
	}
}

// maxUnnamedFields returns how many fields that a schema doesn't name an object may keep.
func maxUnnamedFields(s *openapi3.Schema) int {
	switch {
	case s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has:
		return MaxFaults + 1
	case s.MaxProps != nil:
		return int(*s.MaxProps) + 1
	}
	return int(^uint(0)>>1) - len(s.Properties) // any: none is a fault
}
