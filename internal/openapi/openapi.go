// Package openapi holds the contract as programs read it: openapi.yaml as JSON, without the texts
// that are for people. A process needs a third of the time to read it.
package openapi

import (
	_ "embed"
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
