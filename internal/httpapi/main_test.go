package httpapi_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/contracttest"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// Every answer in a test is checked against the contract (not in benchmarks). At the end of all
// tests, one of them must have seen each answer of the contract.
func TestMain(m *testing.M) {
	pgtest.MoreAtOnce(16) // a few wait for half a minute: the sooner they begin, the better
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" { // it would be what is measured
		contracttest.Watch()
	}
	code := browsertest.Main(m)
	if unseen := contracttest.Unseen(); code == 0 && ranAll() && len(unseen) > 0 {
		fmt.Printf("openapi.yaml has answers that no test has got: %v\n", unseen)
		code = 1
	}
	os.Exit(code)
}

// ranAll reports whether all tests ran.
func ranAll() bool {
	for _, name := range []string{"run", "skip", "list", "fuzz", "bench"} {
		if flag.Lookup("test."+name).Value.String() != "" {
			return false
		}
	}
	return !testing.Short()
}
