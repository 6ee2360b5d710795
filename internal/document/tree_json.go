package document

import (
	"bytes"
	"encoding/json"
)

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
	r.line += bytes.Count(r.raw[r.counted:end], []byte{'\n'}) // tokens have no line breaks
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
			f.name, _ = name.(string) // a valid document has nothing else here
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
