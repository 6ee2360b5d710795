package governance_test

import (
	"os"
	"testing"

	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

func TestMain(m *testing.M) {
	pgtest.MoreAtOnce(8)
	if pgtest.OnCitus() {
		governance.VisitAlways()
	}
	os.Exit(m.Run())
}
