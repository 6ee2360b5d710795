package console_test

import (
	"os"
	"testing"

	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/contracttest"
)

// Every answer of the API is checked against the contract, also one to a session.
func TestMain(m *testing.M) {
	contracttest.Watch()
	os.Exit(browsertest.Main(m))
}
