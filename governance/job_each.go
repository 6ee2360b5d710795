package governance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// eachType calls do for each type of each tenant that attention picks, and adds up the rows. A
// type that stays busy is visited again after every. One type's failure doesn't stop the others.
func (s *shared) eachType(
	ctx context.Context, every time.Duration, do func(store.Overview) (int, error),
) (int, error) {
	tokens, err := s.tokens.read(ctx, s.store)
	if err != nil {
		return 0, err
	}
	var sum int
	var errs []error
	for tenant, types := range s.store.Catalog.Tenants() {
		overviews, err := s.overviews(ctx, tenant, types, tokens[tenant], every)
		n, err2 := eachOverview(overviews, do)
		sum += n
		errs = append(errs, err, err2)
	}
	return sum, errors.Join(errs...)
}

// everyType is eachType for all types, whether or not they have something to do.
func (s *shared) everyType(ctx context.Context, do func(store.Overview) (int, error)) (int, error) {
	var sum int
	var errs []error
	for tenant, types := range s.store.Catalog.Tenants() {
		overviews, err := s.store.Overviews(ctx, tenant, slices.Collect(maps.Keys(types)))
		n, err2 := eachOverview(overviews, do)
		sum += n
		errs = append(errs, err, err2)
	}
	return sum, errors.Join(errs...)
}

func eachOverview(
	overviews []store.Overview, do func(store.Overview) (int, error),
) (sum int, err error) {
	var errs []error
	for _, o := range overviews {
		n, err := do(o)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// untilDone repeats a step while it moves a full batch of rows, and adds up the rows.
func untilDone(step func() (int, error)) (int, error) {
	var sum int
	for {
		n, err := step()
		sum += n
		if err != nil || n < store.JobBatch {
			return sum, err
		}
	}
}
