package settings

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// TaskType returns one task type; CodeNotFound when there is none.
func (s *types) TaskType(ctx context.Context, tenant, name string) (config.StoredType, error) {
	return config.ReadTaskType(ctx, s.core.DB(tenant), tenant, name, "")
}

// TypePage returns up to limit task types of a tenant after a name, by name, and reports whether
// there are more.
func (s *types) TypePage(
	ctx context.Context, tenant, after string, limit int,
) (page []config.StoredType, more bool, err error) {
	rows, _ := s.core.DB(tenant).Query(ctx, config.TaskTypeColumns+
		postgres.Quote(schema.Of(tenant))+`.task_types
		WHERE name > $1 ORDER BY name LIMIT $2`, after, limit+1)
	page, more, err = postgres.CollectPage(rows, limit, postgres.PageBytes, config.ScanTaskType,
		func(t config.StoredType) int { return docBytes(t.TaskType, t.StageMapping) })
	return page, more, postgres.Wrap(err, "TypePage(%q)", tenant)
}
