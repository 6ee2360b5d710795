package asyncflow_test

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// arraysOfOne are comparisons with an array of one value; typesOfIDs are the ones of ADR 56.
var (
	arraysOfOne = regexp.MustCompile(`(\w+) = ANY \(ARRAY\[([^\]]*)\]\)`)
	typesOfIDs  = regexp.MustCompile(`^[uo]\.type$`)
)

// Statements find rows by ids in the forms of ADR 56. With another one, Postgres may read all rows
// of a type for each id.
func TestStatementsFindRowsByIDs(t *testing.T) {
	t.Parallel()
	walkGo(t, func(path string, text []byte, _ *ast.File) {
		if !strings.Contains(path, "store/internal/") || strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, found := range arraysOfOne.FindAllStringSubmatch(string(text), -1) {
			if found[1] == "seq" && found[2] == "k.seq" { // its index of signals is alone
				continue
			}
			assert.Regexp(t, typesOfIDs, found[2], "%s: %s; see ADR 56", path, found[0])
		}
	})
}

// rollChanges are statements that change rows of the tables of a roll.
var rollChanges = regexp.MustCompile(`(?i)\b(UPDATE|DELETE\s+FROM|MERGE\s+INTO|TRUNCATE|` +
	`DeleteRowsSQL)[\s("]+(ONLY\s+)?\{(task|journal)\}`)

// Rows of tasks and journals are only inserted. An erasure overwrites them (ADR 48). They are
// deleted with their type, by the trim of a roll that is compacted, and where a transaction refuses
// a dependent task that it just inserted.
func TestRollsAreInsertOnly(t *testing.T) {
	t.Parallel()
	allowed := map[string]string{
		"tasks/erase_rows.go":          "UPDATE",
		"tasks/erase_notifications.go": "UPDATE",
		"settings/type_delete_rows.go": "DELETE FROM",
		"upkeep/roll_trim_delete.go":   "DeleteRowsSQL",
		"trees/edge_insert.go":         "DELETE FROM",
	}
	found := map[string]bool{}
	walkGo(t, func(path string, text []byte, _ *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, change := range rollChanges.FindAllStringSubmatch(string(text), -1) {
			_, file, _ := strings.Cut(path, "store/internal/")
			assert.Equal(t, allowed[file], change[1], "%s: %s", path, change[0])
			found[file] = true
		}
	})
	assert.Len(t, found, len(allowed))
}
