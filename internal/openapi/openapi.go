// Package openapi holds the contract as programs read it: openapi.yaml as JSON, without the texts
// that are for people. A process needs half the time to read it. Tests check by it what servers and
// dispatchers send.
package openapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// Contract is what Compact makes of openapi.yaml; go generate ./internal/httpapi makes it again.
//
//go:embed contract.json
var Contract []byte

// Document is Contract. All of a process share it, because it takes a while to read. It doesn't
// change.
var Document = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(Contract)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return doc, nil
})

// CheckJSON checks a document against a schema of the contract, such as Delivery.
func CheckJSON(schema string, raw []byte) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	doc, err := Document()
	if err != nil {
		return err
	}
	return doc.Components.Schemas[schema].Value.VisitJSON(v, openapi3.EnableFormatValidation())
}
