// Command compact writes contract.json, which is made of openapi.yaml. go generate runs it in the
// folder of internal/httpapi.
package main

import (
	"fmt"
	"os"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/openapi"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "compact:", err)
		os.Exit(1)
	}
}

func write() error {
	contract, err := openapi.Compact(asyncflow.OpenAPI)
	if err != nil {
		return err
	}
	return os.WriteFile("../openapi/contract.json", contract, 0o644)
}
