package schema

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A node finds a tenant of an older version by the version of its schema, see MigrateTenant. So
// what is granted changes only together with a migration of tenants, if need be one that does
// nothing.
func TestGrantsChangeWithAMigration(t *testing.T) {
	t.Parallel()
	f := RoleFence{prefix: "base"}
	assert.Equal(t, "2775c95c81ac9d43", f.grantsHash(),
		"is there a new migration? Then write the new hash down here")
}
