package governance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// historyJob records the history of the tenants in which something happened or is due, and folds
// the minutes that are older than a day. Without an error, the history of all tenants is known
// until the run began: in tenants that it didn't visit, nothing happened.
type historyJob struct {
	visits

	mu   sync.Mutex
	last map[string]time.Time // when this node last recorded a tenant
	good historyRun           // the last one without an error
}

// historyRun is a run that recorded all tenants. It may take long.
type historyRun struct{ began, ended time.Time }

// historyPause is the shortest time between two runs in which the history counts as not recorded:
// nobody took samples then.
const historyPause = 5 * time.Minute

func (j *historyJob) run(ctx context.Context) (int, error) {
	restless, err := j.restless(ctx)
	if err != nil {
		return 0, err
	}
	began := j.store.Clock.Now()
	sum, errs := 0, []error{}
	for tenant, state := range restless {
		n, err := j.recordTenant(ctx, tenant, state)
		sum += n
		if asyncflow.CodeOf(err) == asyncflow.CodeNotFound { // it was deleted a moment ago
			continue
		}
		if err != nil {
			err = errors.Join(err, j.store.NoteUnread(ctx, tenant))
		}
		errs = append(errs, err)
	}
	if err = errors.Join(errs...); err != nil {
		return sum, err
	}
	return sum, j.extend(ctx, began)
}

// extend says that the history of all tenants is recorded until a run began.
func (j *historyJob) extend(ctx context.Context, began time.Time) error {
	j.mu.Lock()
	before := j.good
	j.mu.Unlock()
	from := began
	if began.Sub(before.ended) < historyPause && before.began.Before(began) {
		from = before.began
	}
	if err := j.store.ExtendHistory(ctx, from, began); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.good = historyRun{began, j.store.Clock.Now()}
	return nil
}

// recordTenant records a tenant's history. The tenant rests until minutes are to be folded, unless
// there will be points in the next minute.
func (j *historyJob) recordTenant(ctx context.Context, tenant string, s state) (int, error) {
	now := j.store.Clock.Now()
	recorded, err := j.store.RecordHistory(ctx, tenant, j.lastOf(tenant))
	if err != nil {
		return recorded.Rows, err
	}
	if recorded.Missed {
		return recorded.Rows, nil
	}
	j.setLast(tenant, now)
	folded, err := untilDone(func() (int, error) { return j.store.FoldHistory(ctx, tenant) })
	if err != nil || recorded.Live {
		return recorded.Rows + folded, err
	}
	next, err := j.store.NextFoldHistory(ctx, tenant)
	if err != nil {
		return recorded.Rows + folded, err
	}
	j.rests.rest(tenant, s, next)
	return recorded.Rows + folded, nil
}

func (j *historyJob) lastOf(tenant string) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last[tenant]
}

func (j *historyJob) setLast(tenant string, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last == nil {
		j.last = map[string]time.Time{}
	}
	for known := range j.last {
		if _, ok := j.store.Catalog.Tenant(known); !ok {
			delete(j.last, known)
		}
	}
	j.last[tenant] = at
}

func (j *historyJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		n, err := j.store.DryRunFoldHistory(ctx, tenant)
		return []store.Due{{Tenant: tenant, Rows: n}}, err
	})
}
