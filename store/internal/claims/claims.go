package claims

import (
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Claims gives tasks to workers that ask for them.
type Claims struct {
	core  *catalog.Core
	hot   *hot.Path
	trees *trees.Trees
	ruled lines
}

// New returns the claims of a database.
func New(core *catalog.Core, hot *hot.Path, trees *trees.Trees) *Claims {
	return &Claims{core: core, hot: hot, trees: trees}
}
