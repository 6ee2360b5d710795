package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Compact returns a contract in YAML as JSON, without descriptions, examples and callbacks. Each
// operation and each schema has a line, so that changes of two of them can be merged.
func Compact(contract []byte) ([]byte, error) {
	raw, err := yaml.YAMLToJSON(contract)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // or large ones lose digits
	var doc any
	if err := decoder.Decode(&doc); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	removeTexts(doc, false)
	var b bytes.Buffer
	if err := write(&b, doc, 3); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// unread are the fields that nothing reads but people and programs that make clients.
var unread = []string{"callbacks", "description", "example", "examples", "summary"}

// named are the fields that hold one thing for each name: their keys are not fields.
var named = []string{"content", "headers", "parameters", "paths", "properties", "requestBodies",
	"responses", "schemas", "securitySchemes"}

// removeTexts removes what is unread from a part of a contract; names reports whether the part's
// keys are names. The description of a pattern stays: faults of requests quote it.
func removeTexts(part any, names bool) {
	switch part := part.(type) {
	case []any:
		for _, entry := range part {
			removeTexts(entry, false)
		}
	case map[string]any:
		for key, value := range part {
			literal := key == "default" || key == "enum" || strings.HasPrefix(key, "x-")
			quoted := key == "description" && part["pattern"] != nil
			switch {
			case names:
				removeTexts(value, false)
			case literal || quoted:
			case slices.Contains(unread, key):
				delete(part, key)
			default:
				removeTexts(value, slices.Contains(named, key))
			}
		}
	}
}

// write writes a value as JSON; each entry of its objects down to a depth has a line.
func write(b *bytes.Buffer, value any, depth int) error {
	object, ok := value.(map[string]any)
	if !ok || depth == 0 {
		raw, err := json.Marshal(value)
		b.Write(raw)
		return err
	}
	separator := "{\n"
	for _, key := range slices.Sorted(maps.Keys(object)) {
		fmt.Fprintf(b, "%s%q: ", separator, key)
		if err := write(b, object[key], depth-1); err != nil {
			return err
		}
		separator = ",\n"
	}
	b.WriteString("\n}")
	return nil
}
