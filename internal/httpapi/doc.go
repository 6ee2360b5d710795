// Package httpapi serves the HTTP API. openapi.yaml is its contract. The routes and their types
// are generated from it, except the handlers of submits and reports. Each request is checked
// against it before a handler runs, and it names the scope that each call needs (x-scope).
//
// Files that begin with request_ handle what all calls share, in the order of request.go; files
// that begin with answer_ and problem_ write answers. The other files hold the handlers, by the
// noun in the path: task_, endpoint_, tenant_ and so on.
//
// Only this package uses fiber.
package httpapi

//go:generate go run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2 -config gen.yaml ../../openapi.yaml
//go:generate go run ../openapi/compact
