package asyncflow_test

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// arraysOfOne are comparisons with an array of one value; typesOfIDs are the ones of ADR 58.
var (
	arraysOfOne = regexp.MustCompile(`(\w+) = ANY \(ARRAY\[([^\]]*)\]\)`)
	typesOfIDs  = regexp.MustCompile(`^[uo]\.type$`)
)

// Statements find rows by ids in the forms of ADR 58. With another one, Postgres may read all rows
// of a type for each id.
func TestStatementsFindRowsByIDs(t *testing.T) {
	t.Parallel()
	walkGo(t, func(path string, text []byte, _ *ast.File) {
		if !strings.Contains(path, "store/internal/") || strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, found := range arraysOfOne.FindAllStringSubmatch(string(text), -1) {
			if found[1] == "seq" && found[2] == "k.seq" { // signals have an index on it alone
				continue
			}
			assert.Regexp(t, typesOfIDs, found[2], "%s: %s; see ADR 58", path, found[0])
		}
	})
}
