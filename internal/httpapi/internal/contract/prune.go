package contract

import (
	"maps"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// prune removes most of what a schema doesn't allow from a JSON value: of an array or a map that is
// too long all but one entry too many, and of unknown fields all but MaxFaults and one. The
// validator makes an error of some 450 bytes for each fault, and a body of 1 MB can have 400,000
// faults. A value that the schema doesn't allow stays so, with the faults that an answer names.
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
