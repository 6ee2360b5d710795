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
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder fills the types of a document from its nodes. Unlike encoding/json it goes on
// after a problem, names each by its path, refuses unknown keys, and distinguishes keys that
// differ only in case.
type decoder struct {
	env   Lookup
	lines lines
	problems
}

func (d *decoder) value(path string, tree node, into reflect.Value) {
	switch {
	case tree.kind == kindNull: // a key without a value: as if it weren't there
		return
	case tree.kind == kindWrong:
		d.add(d.noteLine(path, tree.line), "%s", tree.text)
		return
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, tree, into.Elem())
		return
	}
	text, replaced := tree.text, false
	if tree.kind == kindText {
		expanded, err := expand(text, d.env)
		if err != nil {
			d.add(path, "%v", err)
			return
		}
		replaced, text = expanded != text, expanded
	}
	switch target := into.Addr().Interface().(type) {
	case *json.RawMessage:
		*target = d.json(path, tree)
	case *time.Time:
		d.time(path, tree, text, target)
	case json.Unmarshaler:
		d.document(path, tree, text, replaced, target)
	case encoding.TextUnmarshaler:
		d.text(path, tree, text, target)
	default:
		d.plain(path, tree, text, replaced, into)
	}
}

// json returns a value of any kind as JSON. What replaces a variable in it is text.
func (d *decoder) json(path string, tree node) json.RawMessage {
	var b bytes.Buffer
	d.write(&b, path, tree)
	return b.Bytes()
}

// write writes a node as JSON: in its order, with its digits, its variables replaced.
func (d *decoder) write(b *bytes.Buffer, path string, tree node) {
	separator := ""
	switch tree.kind {
	case kindNull:
		b.WriteString("null")
	case kindText:
		b.WriteString(d.quoted(path, tree))
	case kindNumber, kindBoolean:
		b.WriteString(tree.text)
	case kindList:
		b.WriteByte('[')
		for i, entry := range tree.entries {
			b.WriteString(separator)
			d.write(b, path+"["+strconv.Itoa(i)+"]", entry)
			separator = ","
		}
		b.WriteByte(']')
	case kindMapping:
		b.WriteByte('{')
		for _, f := range tree.fields {
			b.WriteString(separator + quote(f.name) + ":")
			d.write(b, path+"."+f.name, f.value)
			separator = ","
		}
		b.WriteByte('}')
	case kindWrong:
		d.add(d.noteLine(path, tree.line), "%s", tree.text)
	}
}

// quoted returns a text as JSON, with its variables replaced.
func (d *decoder) quoted(path string, tree node) string {
	expanded, err := expand(tree.text, d.env)
	if err != nil {
		d.add(d.noteLine(path, tree.line), "%v", err)
	}
	if expanded == tree.text {
		return tree.raw
	}
	return quote(expanded)
}

// noteLine notes the line of a path, and returns that.
func (d *decoder) noteLine(path string, line int) string {
	d.lines[path] = line
	return path
}

// time fills a time. A YAML document may give one without zone or hour, for UTC.
func (d *decoder) time(path string, tree node, text string, into *time.Time) {
	if tree.date && yaml.Unmarshal([]byte(text), into) == nil {
		return
	}
	d.document(path, tree, text, false, into)
}

// document fills a type that reads JSON by itself.
func (d *decoder) document(
	path string, tree node, text string, replaced bool, into json.Unmarshaler,
) {
	before := len(d.problems)
	raw := d.json(path, tree)
	if replaced && json.Valid([]byte(text)) {
		raw = []byte(text) // a number from the environment
	}
	if len(d.problems) > before || before >= maxProblems {
		return
	}
	if err := into.UnmarshalJSON(raw); err != nil {
		d.add(path, "%v", err)
	}
}

// text fills a type that is written as a string, such as a duration.
func (d *decoder) text(path string, tree node, text string, into encoding.TextUnmarshaler) {
	if tree.kind != kindText {
		text = tree.String() // its own error says what it should look like
	}
	if err := into.UnmarshalText([]byte(text)); err != nil {
		d.add(path, "%v", err)
	}
}

func (d *decoder) plain(path string, tree node, text string, replaced bool, into reflect.Value) {
	switch into.Kind() {
	case reflect.Struct:
		d.object(path, tree, into)
	case reflect.Slice:
		d.list(path, tree, into)
	case reflect.Map:
		d.mapping(path, tree, into)
	case reflect.String:
		if tree.kind != kindText {
			d.add(path, "must be a string, not %s", tree)
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

func (d *decoder) integer(path string, tree node, text string, replaced bool, into reflect.Value) {
	fromText := tree.kind == kindNumber || replaced // by the environment
	if n, err := strconv.Atoi(text); fromText && err == nil {
		into.SetInt(int64(n))
		return
	}
	f, err := strconv.ParseFloat(text, 64)
	if tree.kind == kindNumber && err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		into.SetInt(int64(f))
		return
	}
	d.add(path, "must be a whole number, not %s", tree)
}

func (d *decoder) boolean(path string, tree node, text string, replaced bool, into reflect.Value) {
	if tree.kind == kindBoolean {
		into.SetBool(text == "true")
		return
	}
	if b, err := strconv.ParseBool(text); replaced && err == nil { // from the environment
		into.SetBool(b)
		return
	}
	d.add(path, "must be true or false, not %s", tree)
}

func (d *decoder) list(path string, tree node, into reflect.Value) {
	if tree.kind != kindList {
		d.add(path, "must be a list, not %s", tree)
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(tree.entries), len(tree.entries)))
	for i, entry := range tree.entries {
		d.value(d.noteLine(fmt.Sprintf("%s[%d]", path, i), entry.line), entry, into.Index(i))
	}
}

func (d *decoder) object(path string, tree node, into reflect.Value) {
	if tree.kind != kindMapping {
		d.add(path, "must be a mapping of keys to values, not %s", tree)
		return
	}
	fields := map[string]reflect.Value{}
	collectFields(into, fields)
	for _, f := range tree.fields {
		at := d.noteLine(strings.TrimPrefix(path+"."+f.name, "."), f.line)
		field, known := fields[f.name]
		if !known {
			d.add(at, "is not known here; the keys are %s",
				strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			continue
		}
		d.value(at, f.value, field)
	}
}

// mapping fills a map by names.
func (d *decoder) mapping(path string, tree node, into reflect.Value) {
	if tree.kind != kindMapping {
		d.add(path, "must be a mapping of keys to values, not %s", tree)
		return
	}
	into.Set(reflect.MakeMapWithSize(into.Type(), len(tree.fields)))
	for _, f := range tree.fields {
		value := reflect.New(into.Type().Elem()).Elem()
		d.value(d.noteLine(path+"."+f.name, f.line), f.value, value)
		into.SetMapIndex(reflect.ValueOf(f.name), value)
	}
}

// collectFields adds the fields of a struct by their JSON names, and
// the fields of embedded structs.
func collectFields(of reflect.Value, into map[string]reflect.Value) {
	for i := range of.NumField() {
		f := of.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		if f.Anonymous {
			collectFields(of.Field(i), into)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			into[name] = of.Field(i)
		}
	}
}
