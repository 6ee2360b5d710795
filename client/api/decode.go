package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
)

// Decode reads a JSON document into a struct. It refuses what encoding/json lets
// pass: fields that the type doesn't know or that are spelled with other capitals,
// a field that is given twice, and anything after the document. The two checks of
// names are made at the top of the document.
func Decode(doc []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the JSON document")
	}
	return checkKeys(doc, fieldsOf(reflect.TypeOf(into)))
}

// checkKeys goes over the keys of the outermost object of a valid document.
func checkKeys(doc []byte, known map[string]bool) error {
	seen := make(map[string]bool, len(known))
	for key := range topKeys(doc) {
		switch {
		case known != nil && !known[key]:
			return fmt.Errorf("json: unknown field %q", key)
		case seen[key]:
			return fmt.Errorf("field %q is given twice", key)
		}
		seen[key] = true
	}
	return nil
}

// topKeys yields the keys of the outermost object of a valid document.
func topKeys(doc []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		depth := 0
		for i := 0; i < len(doc); i++ {
			switch doc[i] {
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			case '"':
				end := stringEnd(doc, i)
				if depth == 1 && isKey(doc, end) {
					var key string
					if json.Unmarshal(doc[i:end], &key) != nil || !yield(key) {
						return
					}
				}
				i = end - 1
			}
		}
	}
}

// stringEnd returns where the string that begins at i ends, its quote included.
func stringEnd(doc []byte, i int) int {
	for i++; i < len(doc) && doc[i] != '"'; i++ {
		if doc[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(doc))
}

// isKey tells whether a colon follows.
func isKey(doc []byte, i int) bool {
	rest := bytes.TrimLeft(doc[i:], " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

var fieldCache sync.Map // of reflect.Type to map[string]bool

// fieldsOf returns the JSON names of a struct's fields; nil for any other type.
func fieldsOf(t reflect.Type) map[string]bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := fieldCache.Load(t); ok {
		return known.(map[string]bool)
	}
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names[name] = true
		}
	}
	fieldCache.Store(t, names)
	return names
}
