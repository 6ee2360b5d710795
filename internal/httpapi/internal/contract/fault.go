package contract

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// MaxFaults is how many faults of a request an answer names. There can be 400,000 in a body of 1
// MB.
const MaxFaults = 20

// faults turns the errors of the validator into fields, each with its first fault, up to a little
// over MaxFaults. at is the path of the part of the body that was validated.
func faults(err error, at string) []asyncflow.FieldError {
	var request *openapi3filter.RequestError
	var schema *openapi3.SchemaError
	// Only the outermost list is of several fields: a list in a field's error, such as that of an
	// allOf, is about the field. errors.As would find both.
	multi, isMulti := err.(openapi3.MultiError)
	switch {
	case isMulti:
		var all []asyncflow.FieldError
		for _, e := range multi {
			for _, fault := range faults(e, at) {
				if n := len(all); n == 0 || all[n-1].Field != fault.Field {
					all = append(all, fault)
				}
			}
			if len(all) > MaxFaults {
				break // the answer names no more
			}
		}
		return all
	case errors.As(err, &request) && request.Parameter != nil:
		field := asyncflow.FieldError{
			Field: request.Parameter.Name, Message: parameterMessage(request)}
		return []asyncflow.FieldError{field}
	case errors.As(err, &schema):
		return []asyncflow.FieldError{schemaFault(schema, at)}
	}
	return nil
}

func parameterMessage(e *openapi3filter.RequestError) string {
	var schema *openapi3.SchemaError
	var parse *openapi3filter.ParseError
	switch {
	case errors.As(e.Err, &schema):
		if e.Parameter.In == openapi3.ParameterInPath {
			schema = unescaped(schema)
		}
		return schemaMessage(schema)
	case errors.As(e.Err, &parse) && e.Parameter.Schema != nil:
		kind := kindOf(e.Parameter.Schema.Value)
		return fmt.Sprintf("is %q; it must be %s", fmt.Sprint(parse.Value), kind)
	case errors.Is(e.Err, openapi3filter.ErrInvalidRequired):
		return "is required"
	case errors.Is(e.Err, openapi3filter.ErrInvalidEmptyValue):
		return "must not be empty"
	case e.Err != nil:
		return e.Err.Error()
	}
	return e.Reason
}

// unescaped returns the error of a value in a path as its caller knows the value: paths are matched
// and checked as they were sent, so that no two spellings of a path mean the same. The error stays
// as it is if the escapes are all that is wrong.
func unescaped(e *openapi3.SchemaError) *openapi3.SchemaError {
	sent, isText := e.Value.(string) // else it is a number
	value, err := url.PathUnescape(sent)
	if !isText || err != nil || !utf8.ValidString(value) || e.Schema.VisitJSON(value) == nil {
		return e
	}
	known := *e
	known.Value = value
	return &known
}

// schemaFault names the offending field, such as stages[1].timeout.
func schemaFault(e *openapi3.SchemaError, at string) asyncflow.FieldError {
	field := at
	for _, part := range e.JSONPointer() {
		switch {
		case part != "" && strings.Trim(part, "0123456789") == "":
			field += "[" + part + "]"
		default:
			field = join(field, part)
		}
	}
	var inner *openapi3.SchemaError
	if e.SchemaField == "allOf" && errors.As(e.Origin, &inner) { // the inner error names the part
		return schemaFault(inner, at)
	}
	if name, ok := strings.CutPrefix(e.Reason, `property "`); ok && e.SchemaField == "properties" {
		field = join(field, strings.TrimSuffix(name, `" is unsupported`))
		return asyncflow.FieldError{Field: field, Message: "is not a known field"}
	}
	if fault := variantFault(e, field); fault.Field != "" {
		return fault
	}
	if field == "" {
		field = "body"
	}
	return asyncflow.FieldError{Field: field, Message: schemaMessage(e)}
}

// variantFault returns what is wrong with an object, or a text with a pattern, that only one schema
// of a oneOf could allow; zero: the fault is something else.
func variantFault(e *openapi3.SchemaError, field string) asyncflow.FieldError {
	if e.SchemaField != "oneOf" || variants(e.Schema) != "" { // the message names all
		return asyncflow.FieldError{}
	}
	var one *openapi3.Schema
	switch e.Value.(type) {
	case map[string]any:
		one = onlySchemaFor(e.Value, e.Schema.OneOf)
	case string:
		one = patternAmong(e.Schema.OneOf)
	}
	if one == nil {
		return asyncflow.FieldError{}
	}
	for _, fault := range schemaFaults(one, e.Value, field) {
		return fault
	}
	return asyncflow.FieldError{}
}

// patternAmong returns the schema of texts with a pattern; nil: there is none.
func patternAmong(all openapi3.SchemaRefs) *openapi3.Schema {
	for _, one := range all {
		if one.Value.Pattern != "" {
			return one.Value
		}
	}
	return nil
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// schemaMessage returns what is wrong with a value, and its limit.
func schemaMessage(e *openapi3.SchemaError) string {
	s := e.Schema
	switch e.SchemaField {
	case "required":
		return "is required"
	case "nullable":
		return "must be " + kindOf(s) + ", not null"
	case "oneOf":
		if named := variants(s); named != "" {
			return fmt.Sprintf("is %s; it must be %s", shown(e.Value), named)
		}
		return "must be " + kindOf(s)
	case "format", "type":
		return "must be " + kindOf(s)
	case "enum":
		return fmt.Sprintf("is %s; it must be one of %s", shown(e.Value), choices(s.Enum))
	case "minimum", "maximum":
		return fmt.Sprintf("is %s; it must be %s", shown(e.Value), kindOf(s))
	case "minLength":
		if s.MinLength == 1 {
			return "must not be empty"
		}
		return fmt.Sprintf("is %d characters long; it must have at least %d",
			lengthOf(e.Value), s.MinLength)
	case "maxLength":
		return fmt.Sprintf("is %d characters long; the limit is %d",
			lengthOf(e.Value), *s.MaxLength)
	case "minItems", "maxItems":
		return fmt.Sprintf("must have %d to %s entries", s.MinItems, orAny(s.MaxItems))
	case "minProperties":
		return "must have at least " + fieldCount(s.MinProps)
	case "maxProperties":
		return "must have " + fieldCount(*s.MaxProps) + " at most"
	case "pattern":
		if s.Description != "" {
			rule, _, _ := strings.Cut(strings.Join(strings.Fields(s.Description), " "), ". ")
			rule = lowerFirst(strings.TrimSuffix(rule, "."))
			return fmt.Sprintf("is %s; it must be: %s", shown(e.Value), rule)
		}
	case "allOf": // the inner error says more
		var inner *openapi3.SchemaError
		if errors.As(e.Origin, &inner) {
			return schemaMessage(inner)
		}
	}
	return e.Reason
}

// fieldCount returns a number of fields in words.
func fieldCount(n uint64) string {
	if n == 1 {
		return "1 field"
	}
	return fmt.Sprintf("%d fields", n)
}

// lengthOf returns the length of a string in characters.
func lengthOf(v any) int {
	text, _ := v.(string)
	return utf8.RuneCountInString(text)
}

func lowerFirst(s string) string { return strings.TrimSuffix(strings.ToLower(s[:1])+s[1:], ".") }

// shown returns a value as messages show it: the first characters of its JSON.
func shown(v any) string {
	const limit = 40
	raw, err := api.Encode(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	text := []rune(string(raw))
	if len(text) > limit {
		return string(text[:limit]) + "…"
	}
	return string(text)
}

func choices(enum []any) string {
	words := make([]string, len(enum))
	for i, e := range enum {
		words[i] = fmt.Sprint(e)
	}
	return strings.Join(words, ", ")
}

// kindOf returns, in words, what a value must be.
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
	case len(s.AllOf) == 1:
		return kindOf(s.AllOf[0].Value)
	case s.Type.Is("array") && s.Items != nil && s.MaxItems != nil:
		return fmt.Sprintf("an array of %d to %d entries, each %s",
			s.MinItems, *s.MaxItems, kindOf(s.Items.Value))
	case s.Type.Is("array"):
		return "an array"
	case s.Type.Is("object"):
		return "an object"
	case s.Type.Is("integer"):
		return "a whole number" + rangeOf(s)
	case s.Type.Is("string") && s.MaxLength != nil && s.Pattern == "":
		return fmt.Sprintf("a string of %d to %d characters", s.MinLength, *s.MaxLength)
	case s.Type == nil || len(*s.Type) == 0:
		return "a JSON value"
	}
	return "a " + (*s.Type)[0] + rangeOf(s)
}

// variants names the values and the objects that a schema allows; "": there is no such list.
func variants(s *openapi3.Schema) string {
	var all []string
	named := false
	for _, one := range s.OneOf {
		switch v := one.Value; {
		case len(v.Enum) > 0:
			all, named = append(all, choices(v.Enum)), true
		case v.Type.Is("object"):
			all = append(all, shapeOf(v))
		default:
			all = append(all, kindOf(v))
		}
	}
	if !named {
		return ""
	}
	return strings.Join(all, ", or ")
}

// shapeOf returns an object as in {tolerate: {count | percent of 0 to 100}}.
func shapeOf(s *openapi3.Schema) string {
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if v := s.Properties[name].Value; v.Type.Is("object") {
			name += ": " + shapeOf(v)
		} else {
			name += rangeOf(v)
		}
		fields = append(fields, name)
	}
	between := ", "
	if s.MaxProps != nil && *s.MaxProps == 1 {
		between = " | "
	}
	return "{" + strings.Join(fields, between) + "}"
}

// rangeOf returns the bounds of a schema as in " of 0 to 9".
func rangeOf(s *openapi3.Schema) string {
	number := func(n *float64) string { return strconv.FormatFloat(*n, 'f', -1, 64) }
	switch {
	case s.Min != nil && s.Max != nil:
		return " of " + number(s.Min) + " to " + number(s.Max)
	case s.Min != nil:
		return " of at least " + number(s.Min)
	case s.Max != nil:
		return " of at most " + number(s.Max)
	}
	return ""
}

// orAny returns a limit, or words for none.
func orAny(n *uint64) string {
	if n == nil {
		return "any number of"
	}
	return fmt.Sprint(*n)
}
