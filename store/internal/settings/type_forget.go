package settings

import (
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// ForgetTypes drops what this node keeps for task types of a tenant that are gone, so that
// short-lived types leave nothing behind.
func ForgetTypes(core *catalog.Core, path *hot.Path, tenant string) {
	gone := func(key config.TypeKey) bool {
		if key.Tenant != tenant {
			return false
		}
		_, err := core.Catalog.Type(key.Tenant, key.Type)
		return err != nil
	}
	core.Marks.Forget(gone)
	core.KeyMarks.Forget(gone)
	hot.ForgetTypes(path, gone)
	sets := core.Catalog.SetsOf(tenant)
	noSet := func(key config.TypeKey) bool { return key.Tenant == tenant && sets[key.Type] == nil }
	hot.Forget(path, noSet)
}
