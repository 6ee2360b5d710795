package httpapi_test

import (
	"testing"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// Some of the tests of this package that make citus-test runs on a coordinator of Citus with two
// workers.
func TestAPIOnCitus(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pgtest.OnCitusToo(t, "TestUnansweredChange", "TestIdempotencyKeyExpires", "TestFirstClaim",
		"TestHistoryOfStats", "TestEventsEnd")
}
