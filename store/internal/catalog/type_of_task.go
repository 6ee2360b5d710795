package catalog

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// TypeOf returns the type of a task, if its roll exists; else CodeNotFound.
func (s *Core) TypeOf(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (*config.Type, error) {
	t, err := s.Catalog.Fresh(ctx, tenant, id.Type)
	if err == nil && id.Position() > t.End { // another node may just have opened a roll
		t, err = s.Refreshed(ctx, t)
	}
	if err == nil && t.Has(id.Position()) {
		return t, nil
	}
	if err == nil || asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return nil, config.UnknownTask(id)
	}
	return nil, err
}
