package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Limits of a document. The depth leaves room around a context, which may be 128 deep.
const (
	maxBytes   = 16 << 20
	maxDepth   = 500
	maxAliased = 1 << 20 // bytes and values that aliases add
)

// kind is the kind of a node.
type kind int

const (
	kindNull kind = iota
	kindText
	kindNumber
	kindBoolean
	kindList
	kindMapping
	kindWrong // what stands here can't be read
)

// node is a value of a document, whether that is YAML or JSON.
type node struct {
	kind kind
	line int
	// text is the value of a text, the digits of a number as they are written, true or false, or
	// what is wrong.
	text string
	// raw is a text as JSON.
	raw     string
	date    bool   // a text that YAML takes for a date or a time
	entries []node // of a list
	fields  []field
}

// field is an entry of a mapping.
type field struct {
	name  string
	line  int
	value node
}

func invalidNode(line int, format string, args ...any) node {
	return node{kind: kindWrong, line: line, text: fmt.Sprintf(format, args...)}
}

func textNode(line int, text string) node {
	return node{kind: kindText, line: line, text: text, raw: quote(text)}
}

// quote returns a text as JSON.
func quote(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // there is no fault in a string
	return strings.TrimSuffix(b.String(), "\n")
}

// markDuplicates replaces the value of each field with the name of an earlier field by an error.
func markDuplicates(fields []field) []field {
	lines := make(map[string]int, len(fields))
	for i, f := range fields {
		if first, twice := lines[f.name]; twice {
			fields[i].value = invalidNode(f.line, "is there twice, first in line %d", first)
			continue
		}
		lines[f.name] = f.line
	}
	return fields
}

// String names what stands in a document, for an error message.
func (n node) String() string {
	switch n.kind {
	case kindNull:
		return "null"
	case kindText:
		return quote(n.text)
	case kindList:
		return "a list"
	case kindMapping:
		return "a mapping"
	}
	return n.text
}

// jsonReader turns a JSON document into nodes. Texts and numbers stay as they are written.
type jsonReader struct {
	raw     []byte
	decoder *json.Decoder
	line    int
	counted int // the bytes in which lines are counted
}

// parseJSON reads a document that json.Valid accepts.
func parseJSON(raw []byte) (node, error) {
	r := jsonReader{raw: raw, decoder: json.NewDecoder(bytes.NewReader(raw)), line: 1}
	r.decoder.UseNumber()
	return r.value(0)
}

// token returns the next token, with its text in the document. It counts lines.
func (r *jsonReader) token() (json.Token, string, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, "", err
	}
	end := int(r.decoder.InputOffset())
	r.line += bytes.Count(r.raw[r.counted:end], []byte{'\n'}) // there are no line breaks in tokens
	text := bytes.TrimLeft(r.raw[r.counted:end], " \t\r\n:,")
	r.counted = end
	return token, string(text), nil
}

func (r *jsonReader) value(depth int) (node, error) {
	token, text, err := r.token()
	if err != nil {
		return node{}, err
	}
	n := node{line: r.line, text: text}
	switch token := token.(type) {
	case json.Delim:
		n, err = r.container(token, n, depth)
		if depth > maxDepth {
			n = invalidNode(n.line, "is nested more than %d deep", maxDepth)
		}
		return n, err
	case string:
		n.kind, n.text, n.raw = kindText, token, text
	case json.Number:
		n.kind = kindNumber
	case bool:
		n.kind = kindBoolean
	}
	return n, nil
}

// container reads the rest of a list or a mapping.
func (r *jsonReader) container(open json.Delim, n node, depth int) (node, error) {
	n.kind = kindList
	if open == '{' {
		n.kind = kindMapping
	}
	for r.decoder.More() {
		var f field
		if n.kind == kindMapping {
			name, _, err := r.token()
			if err != nil {
				return n, err
			}
			f.name, _ = name.(string) // nothing else is here in a valid document
			f.line = r.line
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return n, err
		}
		if n.kind == kindList {
			n.entries = append(n.entries, value)
			continue
		}
		f.value = value
		n.fields = append(n.fields, f)
	}
	n.fields = markDuplicates(n.fields)
	_, _, err := r.token()
	return n, err
}
