package docspage

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// kind says what a value is: words around the name of a schema, if it has one.
type kind struct{ Before, Ref, After string }

const schemaPath = "#/components/schemas/"

func kindOf(ref *openapi3.SchemaRef) kind {
	if ref == nil {
		return kind{}
	}
	if name, ok := strings.CutPrefix(ref.Ref, schemaPath); ok {
		return kind{Ref: name}
	}
	s := ref.Value
	switch {
	case len(s.AllOf) > 0:
		return kindOf(s.AllOf[0])
	case len(s.OneOf) > 0:
		var words []string
		for _, one := range s.OneOf {
			k := kindOf(one)
			words = append(words, k.Before+k.Ref+k.After)
		}
		return kind{Before: strings.Join(words, " or ")}
	case s.Type.Is("array"):
		k := kindOf(s.Items)
		return kind{Before: "list of " + k.Before, Ref: k.Ref, After: k.After + limits(s)}
	case s.Type.Is("object") && s.AdditionalProperties.Schema != nil:
		k := kindOf(s.AdditionalProperties.Schema)
		return kind{Before: "object of " + k.Before, Ref: k.Ref, After: k.After + limits(s)}
	case s.Type == nil || len(*s.Type) == 0:
		return kind{Before: "any JSON"}
	}
	word := (*s.Type)[0]
	if s.Format == "date-time" {
		word = "time"
	}
	return kind{Before: word + limits(s)}
}

// limits says what a value of a type may be.
func limits(s *openapi3.Schema) string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if len(s.Enum) > 0 {
		words := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			words[i] = fmt.Sprint(v)
		}
		add("%s", strings.Join(words, " | "))
	}
	if s.Min != nil {
		add("≥ %s", number(*s.Min))
	}
	if s.Max != nil {
		add("≤ %s", number(*s.Max))
	}
	for _, l := range []struct {
		least uint64
		most  *uint64
		of    string
	}{{s.MinLength, s.MaxLength, "characters"}, {s.MinItems, s.MaxItems, "items"}, {s.MinProps, s.MaxProps, "fields"}} {
		if l.least > 0 {
			add("at least %d %s", l.least, l.of)
		}
		if l.most != nil {
			add("at most %d %s", *l.most, l.of)
		}
	}
	if s.Pattern != "" {
		add("like %s", s.Pattern)
	}
	if s.Default != nil {
		add("%v unless told", s.Default)
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, ", ")
}

// number writes a limit without an exponent.
func number(f float64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
}

// describe returns a description, or else that of the schema itself, if it has no name
// under which it is described.
func describe(text string, ref *openapi3.SchemaRef) []template.HTML {
	if text == "" && ref != nil && ref.Ref == "" {
		text = ref.Value.Description
	}
	return paragraphs(text)
}

func schemaOf(name string, s *openapi3.Schema) schema {
	out := schema{Name: name, Description: paragraphs(s.Description)}
	if s.Example != nil {
		out.Example = pretty(s.Example)
	}
	parts := append([]*openapi3.SchemaRef{{Value: s}}, s.AllOf...)
	for _, part := range parts {
		out.Fields = append(out.Fields, fieldsOf(part.Value)...)
	}
	if len(out.Fields) == 0 {
		out.Type = kindOf(&openapi3.SchemaRef{Value: s})
	}
	return out
}

// fieldsOf returns the properties of an object: those that are required first, then by
// their names.
func fieldsOf(s *openapi3.Schema) (all []field) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		all = append(all, field{Name: name, Required: slices.Contains(s.Required, name), Type: kindOf(p), Description: describe("", p)})
	}
	slices.SortStableFunc(all, func(a, b field) int {
		return cmp.Compare(order(a), order(b))
	})
	return all
}

func order(f field) int {
	if f.Required {
		return 0
	}
	return 1
}
