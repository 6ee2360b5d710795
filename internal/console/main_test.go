package console_test

import (
	"os"
	"testing"

	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/contracttest"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// Every answer of the API is checked against the contract, also one to a session.
func TestMain(m *testing.M) {
	contracttest.Watch()
	pgtest.MoreAtOnce(8)
	os.Exit(browsertest.Main(m))
}
