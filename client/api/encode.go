package api

import (
	"bytes"
	"encoding/json"
)

// Encode returns a JSON document that keeps the characters of its raw parts. By default, package
// json would write "<" in them as "\u003c".
func Encode(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(doc)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}
