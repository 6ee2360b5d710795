package catalog

import (
	"github.com/asyncflow/asyncflow/store/internal/config"
)

import "context"

// followTries is how often FollowRolls tries again with newer rolls.
const followTries = 3

// FollowRolls runs do with a type. After a roll move it reads the type again and repeats do,
// which must be safe: its transaction was rolled back. A type that is gone is CodeNotFound.
func (s *Core) FollowRolls(ctx context.Context, t *config.Type, do func(*config.Type) error) error {
	err := do(t)
	for range followTries {
		if !config.RolledOn(err) {
			return err
		}
		fresh, missing := s.Refreshed(ctx, t)
		if missing != nil {
			return missing
		}
		if fresh == t {
			return err
		}
		t = fresh
		err = do(t)
	}
	return err
}

// Refreshed returns a type as the database has it now.
func (s *Core) Refreshed(ctx context.Context, t *config.Type) (*config.Type, error) {
	if err := s.Catalog.RefreshTenant(ctx, t.Tenant); err != nil {
		return nil, err
	}
	return s.Catalog.Type(t.Tenant, t.Name)
}
