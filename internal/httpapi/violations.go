package httpapi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/asyncflow/asyncflow"
)

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
		default:
			field = join(field, part)
		}
	}
	if name, ok := strings.CutPrefix(e.Reason, `property "`); ok && e.SchemaField == "properties" {
		return asyncflow.FieldError{Field: join(field, strings.TrimSuffix(name, `" is unsupported`)), Message: "is not a known field"}
	}
	if field == "" {
		field = "body"
	}
	return asyncflow.FieldError{Field: field, Message: schemaMessage(e)}
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

func schemaMessage(e *openapi3.SchemaError) string {
	switch {
	case e.SchemaField == "required":
		return "is required"
	case e.SchemaField == "oneOf", e.SchemaField == "format", e.SchemaField == "type":
		return "must be " + kindOf(e.Schema)
	case e.SchemaField == "minItems" || e.SchemaField == "maxItems":
		return fmt.Sprintf("must have %d to %s entries", e.Schema.MinItems, most(e.Schema.MaxItems))
	case e.SchemaField == "pattern" && e.Schema.Description != "":
		text, _ := e.Value.(string)
		return fmt.Sprintf("is %q; it must be: %s", text, lowerFirst(strings.TrimSpace(e.Schema.Description)))
	}
	return e.Reason
}

func lowerFirst(s string) string { return strings.TrimSuffix(strings.ToLower(s[:1])+s[1:], ".") }

// kindOf says in words what a value must be.
func kindOf(s *openapi3.Schema) string {
	switch {
	case s.Format == "date-time":
		return "a time such as 2026-11-21T10:00:00Z"
	case len(s.OneOf) > 0:
		kinds := make([]string, len(s.OneOf))
		for i, one := range s.OneOf {
			kinds[i] = kindOf(one.Value)
		}
		return strings.Join(kinds, ", or ")
	case s.Type.Is("array") && s.Items != nil:
		return "an array, each entry " + kindOf(s.Items.Value)
	case s.Type.Is("array"):
		return "an array"
	case s.Type.Is("object"):
		return "an object"
	case s.Type.Is("integer"):
		return "a whole number" + rangeOf(s)
	case s.Type.Is("string") && s.MaxLength != nil:
		return fmt.Sprintf("a string of %d to %d characters", s.MinLength, *s.MaxLength)
	case s.Type == nil || len(*s.Type) == 0:
		return "a JSON value"
	}
	return "a " + (*s.Type)[0] + rangeOf(s)
}

// rangeOf returns " of 0 to 9" where a schema has both bounds.
func rangeOf(s *openapi3.Schema) string {
	if s.Min == nil || s.Max == nil {
		return ""
	}
	return fmt.Sprintf(" of %v to %v", int64(*s.Min), int64(*s.Max))
}

func most(n *uint64) string {
	if n == nil {
		return "any number of"
	}
	return fmt.Sprint(*n)
}
