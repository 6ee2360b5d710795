package store_test

import (
	"os"
	"testing"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.MoreAtOnce(14)
	os.Exit(m.Run())
}
