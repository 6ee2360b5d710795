package store

import (
	"context"
)

// TaskType returns one task type; CodeNotFound when there is none.
func (s *Store) TaskType(ctx context.Context, tenant, name string) (StoredType, error) {
	return readTaskType(ctx, s.of(tenant), tenant, name, "")
}

// TypePage returns up to limit task types of a tenant by name, those after a name, and
// whether there are more.
func (s *Store) TypePage(
	ctx context.Context,
	tenant, after string,
	limit int,
) (page []StoredType, more bool, err error) {
	rows, err := s.of(tenant).Query(ctx, taskTypeColumns+quote(schemaOf(tenant))+`.task_types
		WHERE name > $1 ORDER BY name LIMIT $2`, after, limit+1)
	if err == nil {
		page, more, err = collectPage(rows, limit, PageBytes, scanTaskType,
			func(t StoredType) int { return docBytes(t.TaskType, t.StageMapping) })
	}
	return page, more, wrap(err, "TypePage(%q)", tenant)
}
