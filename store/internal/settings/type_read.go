package settings

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// TaskType returns one task type; CodeNotFound when there is none.
func (s *Settings) TaskType(ctx context.Context, tenant, name string) (catalog.StoredType, error) {
	return catalog.ReadTaskType(ctx, s.core.DB(tenant), tenant, name, "")
}

// TypePage returns up to limit task types of a tenant after a name, by name, and reports whether
// there are more.
func (s *Settings) TypePage(
	ctx context.Context,
	tenant, after string,
	limit int,
) (page []catalog.StoredType, more bool, err error) {
	rows, err := s.core.DB(tenant).Query(ctx, catalog.TaskTypeColumns+
		postgres.Quote(schema.Of(tenant))+`.task_types
		WHERE name > $1 ORDER BY name LIMIT $2`, after, limit+1)
	if err != nil {
		return nil, false, postgres.Wrap(err, "TypePage(%q)", tenant)
	}
	page, more, err = catalog.CollectPage(rows, limit, catalog.PageBytes, catalog.ScanTaskType,
		func(t catalog.StoredType) int { return docBytes(t.TaskType, t.StageMapping) })
	return page, more, postgres.Wrap(err, "TypePage(%q)", tenant)
}
