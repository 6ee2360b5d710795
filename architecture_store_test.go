package asyncflow_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// storeRooms lists the packages below store/internal from the floor up. Each may import packages of
// lower levels, never one of its own level. docs/architecture.md says what each does.
var storeRooms = [][]string{
	{"lowwater", "postgres"},
	{"schema"},
	{"config", "checkup"},
	{"news"},
	{"catalog"},
	{"records", "audit"},
	{"hot"},
	{"trees", "counts"},
	{"claims", "tasks", "settings", "history"},
	{"upkeep"},
}

func TestStoreRooms(t *testing.T) {
	t.Parallel()
	found := 0
	for _, p := range listPackages(t) {
		room, ok := strings.CutPrefix(local(p.ImportPath), "store/internal/")
		if !ok {
			continue
		}
		found++
		for _, path := range p.Imports {
			if used, ok := strings.CutPrefix(local(path), "store/internal/"); ok {
				assert.Less(t, roomLevel(t, used), roomLevel(t, room), "%s must not import %s",
					room, used)
			}
		}
	}
	require.Equal(t, len(slices.Concat(storeRooms...)), found)
}

// roomLevel returns the level of a package below store/internal.
func roomLevel(t *testing.T, room string) int {
	t.Helper()
	level := slices.IndexFunc(storeRooms, func(rooms []string) bool {
		return slices.Contains(rooms, room)
	})
	require.GreaterOrEqual(t, level, 0, "%s is not in storeRooms", room)
	return level
}
