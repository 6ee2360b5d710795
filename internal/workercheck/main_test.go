package workercheck

import (
	"os"
	"testing"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.MoreAtOnce(16) // the checks mostly wait, since they give a worker time
	os.Exit(m.Run())
}
