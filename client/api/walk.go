package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/asyncflow/asyncflow"
)

// walk goes through a valid JSON document and the Go type that it is read into, and checks the
// document's names and texts.
type walk struct {
	asyncflow.JSONWalk
	refused bool // encoding/json could not read it: find the invalid field
	anyText bool
}

// value checks the value that comes next, and moves past it.
func (w *walk) value(path string, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	own := reflect.PointerTo(t).Implements(unmarshaler) // t has its own UnmarshalJSON
	switch c := w.Space(); {
	case c == '{' && t.Kind() == reflect.Struct && !own:
		return w.object(path, fieldsOf(t), nil)
	case c == '{' && t.Kind() == reflect.Map && !own:
		return w.object(path, nil, t.Elem())
	case c == '[' && t.Kind() == reflect.Slice && !own &&
		(w.refused || !reflect.PointerTo(t.Elem()).Implements(unmarshaler)):
		return w.array(path, t.Elem())
	}
	return w.leaf(path, w.Skip(), t, own)
}

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()
	document    = reflect.TypeFor[JSON]()      // may be null
	item        = reflect.TypeFor[BatchItem]() // keeps its own error
)

// object checks an object: a struct with known fields, or a map with values of type any.
func (w *walk) object(path string, known map[string]field, any reflect.Type) error {
	var seen uint64 // known fields by their index
	var others map[string]bool
	w.Enter()
	for w.Next() {
		raw := w.Name()
		name, err := unquote(raw)
		f, ok := known[name]
		switch {
		case err != nil:
			return err
		case known != nil && !ok:
			return fmt.Errorf("json: unknown field %q", join(path, name))
		case known == nil && others[name], known != nil && seen&(1<<f.index) != 0:
			return fmt.Errorf("field %q is given twice", join(path, name))
		case known == nil && (!utf8.Valid(raw) || strings.ContainsRune(name, 0)):
			return fmt.Errorf("field %q has a name that is not UTF-8 without NUL", join(path, name))
		case known == nil:
			f.kind = any
			if others == nil {
				others = map[string]bool{}
			}
			others[name] = true
		}
		seen |= 1 << f.index
		if w.Space(); f.notEmpty && bytes.HasPrefix(w.Doc[w.At:], []byte(`""`)) {
			return fmt.Errorf("field %q must not be empty", join(path, name))
		}
		if err := w.value(join(path, name), f.kind); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) array(path string, t reflect.Type) error {
	w.Enter()
	for i := 0; w.Next(); i++ {
		if err := w.value(fmt.Sprintf("%s[%d]", path, i), t); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks a value without known fields.
func (w *walk) leaf(path string, raw []byte, t reflect.Type, own bool) error {
	switch {
	case path == "" && string(raw) == "null": // json.Unmarshal would read it as an empty document
		return errors.New("must be an object, not null")
	case path == "":
		return nil // the whole document: json.Unmarshal already checked its type
	}
	if w.refused {
		if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
			return fmt.Errorf("field %q %s", path, strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	switch {
	case t == document || t == item:
	case string(raw) == "null":
		return fmt.Errorf("field %q must not be null", path)
	case own:
	case raw[0] == '"' && !w.anyText && !isText(raw):
		return fmt.Errorf("field %q must be UTF-8 without NUL", path)
	}
	return nil
}

// isText reports whether a JSON string is UTF-8 without NUL. An escape may stand for half a
// character (a lone surrogate), which package json silently replaces.
func isText(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	if !bytes.Contains(raw, []byte(`\u`)) {
		return true
	}
	text, err := unquote(raw)
	replaced := strings.Count(text, "\uFFFD") -
		strings.Count(strings.ToLower(string(raw)), `\ufffd`) -
		strings.Count(string(raw), "\uFFFD")
	return err == nil && !strings.ContainsRune(text, 0) && replaced <= 0
}

func unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err
}

// member returns where the value of the member with this name begins and ends in a valid document.
// from equals to if the document isn't an object with exactly one such member.
func member(doc []byte, name string) (from, to int) {
	w := asyncflow.JSONWalk{Doc: doc}
	if w.Enter() != '{' {
		return 0, 0
	}
	for w.Next() {
		key, value := readMember(&w)
		switch {
		case bytes.IndexByte(key, '\\') >= 0, // it may be the name with escapes
			from != to && string(key) == name: // given twice
			return 0, 0
		case string(key) == name:
			from, to = w.At-len(value), w.At
		}
	}
	return from, to
}

// readMember moves past a member of an object. It returns the member's name, as it is spelled, and
// its value.
func readMember(w *asyncflow.JSONWalk) (name, value []byte) {
	name = w.Name()
	return name[1 : len(name)-1], w.Skip()
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// field is a field of a struct.
type field struct {
	index    int
	kind     reflect.Type
	notEmpty bool // an empty text is refused: it would look like an absent one
}

var fieldCache sync.Map // of reflect.Type to map[string]field

// fieldsOf returns the fields of a struct by their JSON names.
func fieldsOf(t reflect.Type) map[string]field {
	if known, ok := fieldCache.Load(t); ok {
		return known.(map[string]field)
	}
	fields := map[string]field{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields[name] = field{len(fields), f.Type, f.Tag.Get("empty") == "refused"}
		}
	}
	fieldCache.Store(t, fields)
	return fields
}
