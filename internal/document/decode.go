package document

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decoder fills the types of a document from a YAML tree. Unlike encoding/json it goes on
// after a problem, names each by its path, refuses unknown keys, and distinguishes keys that
// differ only in case.
type decoder struct {
	env Lookup
	problems
}

// decode fills what into points to.
func (d *decoder) decode(path string, tree any, into any) {
	d.value(path, tree, reflect.ValueOf(into).Elem())
}

func (d *decoder) value(path string, tree any, into reflect.Value) {
	if tree == nil { // a key without a value: as if it weren't there
		return
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, tree, into.Elem())
		return
	}
	text, isText := tree.(string)
	replaced := false
	if isText {
		expanded, err := expand(text, d.env)
		if err != nil {
			d.add(path, "%v", err)
			return
		}
		replaced, text = expanded != text, expanded
	}
	switch target := into.Addr().Interface().(type) {
	case *json.RawMessage:
		d.any(path, tree, target)
	case json.Unmarshaler:
		d.document(path, tree, text, replaced, target)
	case encoding.TextUnmarshaler:
		d.text(path, tree, text, isText, target)
	default:
		d.plain(path, tree, text, replaced, into)
	}
}

// any takes a value of any kind as JSON. What replaces a variable in it is text.
func (d *decoder) any(path string, tree any, into *json.RawMessage) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(d.expanded(path, tree)); err != nil {
		d.add(path, "can't be written as JSON: %v", err)
		return
	}
	*into = bytes.TrimSpace(b.Bytes())
}

// expanded returns a tree with the variables in its texts replaced.
func (d *decoder) expanded(path string, tree any) any {
	switch v := tree.(type) {
	case string:
		text, err := expand(v, d.env)
		if err != nil {
			d.add(path, "%v", err)
		}
		return text
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = d.expanded(fmt.Sprintf("%s[%d]", path, i), v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[key] = d.expanded(path+"."+key, v[key])
		}
		return out
	}
	return tree
}

// document fills a type that reads JSON by itself.
func (d *decoder) document(
	path string, tree any, text string, replaced bool, into json.Unmarshaler,
) {
	raw, err := json.Marshal(tree)
	switch {
	case replaced && json.Valid([]byte(text)):
		raw, err = []byte(text), nil // a number from the environment
	case replaced:
		raw, err = json.Marshal(text)
	}
	if err == nil {
		err = into.UnmarshalJSON(raw)
	}
	if err != nil {
		d.add(path, "%v", err)
	}
}

// text fills a type that is written as a string, such as a duration.
func (d *decoder) text(
	path string, tree any, text string, isText bool, into encoding.TextUnmarshaler,
) {
	if !isText {
		text = fmt.Sprint(tree) // its own error says what it should look like
	}
	if err := into.UnmarshalText([]byte(text)); err != nil {
		d.add(path, "%v", err)
	}
}

func (d *decoder) plain(path string, tree any, text string, replaced bool, into reflect.Value) {
	switch into.Kind() {
	case reflect.Struct:
		d.object(path, tree, into)
	case reflect.Slice:
		d.list(path, tree, into)
	case reflect.Map:
		d.mapping(path, tree, into)
	case reflect.String:
		if _, ok := tree.(string); !ok {
			d.add(path, "must be a string, not %s", kindOf(tree))
			return
		}
		into.SetString(text)
	case reflect.Int:
		d.integer(path, tree, text, replaced, into)
	case reflect.Bool:
		d.boolean(path, tree, text, replaced, into)
	default:
		panic("a document has no " + into.Kind().String())
	}
}

func (d *decoder) integer(path string, tree any, text string, replaced bool, into reflect.Value) {
	if n, ok := tree.(int); ok {
		into.SetInt(int64(n))
		return
	}
	if f, ok := tree.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		into.SetInt(int64(f))
		return
	}
	if n, err := strconv.Atoi(text); replaced && err == nil { // from the environment
		into.SetInt(int64(n))
		return
	}
	d.add(path, "must be a whole number, not %s", kindOf(tree))
}

func (d *decoder) boolean(path string, tree any, text string, replaced bool, into reflect.Value) {
	if b, ok := tree.(bool); ok {
		into.SetBool(b)
		return
	}
	if b, err := strconv.ParseBool(text); replaced && err == nil { // from the environment
		into.SetBool(b)
		return
	}
	d.add(path, "must be true or false, not %s", kindOf(tree))
}

func (d *decoder) list(path string, tree any, into reflect.Value) {
	entries, ok := tree.([]any)
	if !ok {
		d.add(path, "must be a list, not %s", kindOf(tree))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(entries), len(entries)))
	for i, entry := range entries {
		d.value(fmt.Sprintf("%s[%d]", path, i), entry, into.Index(i))
	}
}

func (d *decoder) object(path string, tree any, into reflect.Value) {
	object, ok := tree.(map[string]any)
	if !ok {
		d.add(path, "must be a mapping of keys to values, not %s", kindOf(tree))
		return
	}
	fields := map[string]reflect.Value{}
	collectFields(into, fields)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		field, known := fields[key]
		if !known {
			d.add(at, "is not known here; the keys are %s",
				strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			continue
		}
		d.value(at, object[key], field)
	}
}

// mapping fills a map by names.
func (d *decoder) mapping(path string, tree any, into reflect.Value) {
	object, ok := tree.(map[string]any)
	if !ok {
		d.add(path, "must be a mapping of keys to values, not %s", kindOf(tree))
		return
	}
	into.Set(reflect.MakeMapWithSize(into.Type(), len(object)))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := reflect.New(into.Type().Elem()).Elem()
		d.value(path+"."+key, object[key], value)
		into.SetMapIndex(reflect.ValueOf(key), value)
	}
}

// collectFields adds the fields of a struct by their JSON names, those of
// embedded ones too.
func collectFields(of reflect.Value, into map[string]reflect.Value) {
	for i := range of.NumField() {
		f := of.Type().Field(i)
		if f.Anonymous {
			collectFields(of.Field(i), into)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		into[name] = of.Field(i)
	}
}

// kindOf names what stands in a document, for an error message.
func kindOf(tree any) string {
	switch v := tree.(type) {
	case string:
		return strconv.Quote(v)
	case []any:
		return "a list"
	case map[string]any, map[any]any:
		return "a mapping"
	}
	return fmt.Sprint(tree)
}
