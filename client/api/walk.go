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
	doc     []byte
	at      int
	refused bool // encoding/json could not read it: find the invalid field
	anyText bool
}

// value checks the value that begins at w.at, and moves past it.
func (w *walk) value(path string, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	w.space()
	own := reflect.PointerTo(t).Implements(unmarshaler) // t has its own UnmarshalJSON
	switch c := w.doc[w.at]; {
	case c == '{' && t.Kind() == reflect.Struct && !own:
		return w.object(path, fieldsOf(t), nil)
	case c == '{' && t.Kind() == reflect.Map && !own:
		return w.object(path, nil, t.Elem())
	case c == '[' && t.Kind() == reflect.Slice && !own &&
		(w.refused || !reflect.PointerTo(t.Elem()).Implements(unmarshaler)):
		return w.array(path, t.Elem())
	}
	start := w.at
	w.skip()
	return w.leaf(path, w.doc[start:w.at], t, own)
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
	for w.next('}') {
		start := w.at
		w.at = asyncflow.StringEnd(w.doc, start)
		name, err := unquote(w.doc[start:w.at])
		f, ok := known[name]
		switch {
		case err != nil:
			return err
		case known != nil && !ok:
			return fmt.Errorf("json: unknown field %q", join(path, name))
		case known == nil && others[name], known != nil && seen&(1<<f.index) != 0:
			return fmt.Errorf("field %q is given twice", join(path, name))
		case known == nil && (!utf8.Valid(w.doc[start:w.at]) || strings.ContainsRune(name, 0)):
			return fmt.Errorf("field %q has a name that is not UTF-8 without NUL", join(path, name))
		case known == nil:
			f.kind = any
			if others == nil {
				others = map[string]bool{}
			}
			others[name] = true
		}
		seen |= 1 << f.index
		w.space()
		w.at++ // the colon
		if w.space(); f.notEmpty && bytes.HasPrefix(w.doc[w.at:], []byte(`""`)) {
			return fmt.Errorf("field %q must not be empty", join(path, name))
		}
		if err := w.value(join(path, name), f.kind); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) array(path string, t reflect.Type) error {
	for i := 0; w.next(']'); i++ {
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

// next moves to the next member of an object or array. If there is none, it moves past the end and
// returns false.
func (w *walk) next(end byte) bool {
	for {
		w.space()
		switch w.doc[w.at] {
		case '{', '[':
			if w.at++; w.first(end) {
				return true
			}
		case ',':
			w.at++
			w.space()
			return true
		case end:
			w.at++
			return false
		}
	}
}

// first reports whether an object or array that has just begun has a member.
func (w *walk) first(end byte) bool {
	w.space()
	return w.doc[w.at] != end
}

func (w *walk) space() {
	for w.at < len(w.doc) &&
		(w.doc[w.at] == ' ' || w.doc[w.at] == '\n' || w.doc[w.at] == '\t' || w.doc[w.at] == '\r') {
		w.at++
	}
}

// member returns where the value of the member with this name begins and ends in a valid document.
// from equals to if the document isn't an object with exactly one such member.
func member(doc []byte, name string) (from, to int) {
	w := walk{doc: doc}
	if w.space(); w.doc[w.at] != '{' {
		return 0, 0
	}
	for w.next('}') {
		key, value := w.member()
		switch {
		case bytes.IndexByte(key, '\\') >= 0, // it may be the name with escapes
			from != to && string(key) == name: // given twice
			return 0, 0
		case string(key) == name:
			from, to = w.at-len(value), w.at
		}
	}
	return from, to
}

// member moves past a member of an object. It returns the member's name, as it is spelled, and its
// value.
func (w *walk) member() (name, value []byte) {
	start := w.at
	w.at = asyncflow.StringEnd(w.doc, start)
	name = w.doc[start+1 : w.at-1]
	w.space()
	w.at++ // the colon
	w.space()
	start = w.at
	w.skip()
	return name, w.doc[start:w.at]
}

// skip moves past a value.
func (w *walk) skip() {
	depth := 0
	for ; w.at < len(w.doc); w.at++ {
		switch w.doc[w.at] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // the end of the enclosing object or array
				return
			}
			if depth--; depth == 0 {
				w.at++
				return
			}
		case ',':
			if depth == 0 {
				return
			}
		case '"':
			w.at = asyncflow.StringEnd(w.doc, w.at) - 1
			if depth == 0 {
				w.at++
				return
			}
		case ' ', '\n', '\t', '\r':
			if depth == 0 {
				return
			}
		}
	}
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
