package asyncflow

import _ "embed"

// OpenAPI is the contract of the HTTP API, openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
