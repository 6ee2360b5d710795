package dispatcher_test

import (
	"os"
	"testing"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.MoreAtOnce()
	os.Exit(m.Run())
}
