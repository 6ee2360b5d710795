// Package httpapi serves the HTTP API. openapi.yaml is its contract: the routes
// and their types are generated from it, but for the handlers of submits and of
// reports; requests are checked against it before a handler sees them, and the scope
// that a call needs is read from it (x-scope).
//
// fiber is used in this package only.
package httpapi

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config gen.yaml ../../openapi.yaml
