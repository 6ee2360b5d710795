// Package api holds the types of the HTTP API and a plain client for it, both generated from
// openapi.yaml. Package client wraps them with retries and helpers.
package api

import (
	"bytes"
	"encoding/json"
)

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config gen.yaml ../../openapi.yaml

// BatchItem is one task of a batch. Reading it never fails: Err keeps what is wrong with the task,
// so that the other tasks of the batch are still accepted.
type BatchItem struct {
	NewTask
	Err error           `json:"-"`
	Raw json.RawMessage `json:"-"` // the document, if Err is set or it may have a retry policy
}

// MarshalJSON writes the task.
func (i BatchItem) MarshalJSON() ([]byte, error) { return json.Marshal(i.NewTask) }

// UnmarshalJSON reads the task. It records an invalid or unknown field in Err.
func (i *BatchItem) UnmarshalJSON(b []byte) error {
	if i.Err = read(b, &i.NewTask); i.Err != nil || bytes.Contains(b, []byte(`"retry"`)) {
		i.Raw = append(i.Raw, b...)
	}
	return nil
}

// Encode returns a JSON document that keeps the characters of its raw parts. By default, package
// json would write "<" in them as "\u003c".
func Encode(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(doc)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}
