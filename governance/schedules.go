package governance

import (
	"context"

	"github.com/asyncflow/asyncflow/store"
)

// scheduleRounds is how many rounds a tenant's schedules get before the next tenant's turn.
const scheduleRounds = 10

// schedulesJob submits the tasks of due ticks, of all tenants. Other nodes do the same; one node
// submits each tick. A tick may pass to another node and come later, never earlier, without a
// new version of the tenant's configuration.
type schedulesJob struct {
	visits
	committer Committer
}

func (j *schedulesJob) run(ctx context.Context) (int, error) {
	return j.eachDue(ctx, j.store.FirstTicks, j.tick)
}

// tick submits the tasks of a tenant's due ticks, and returns how many. The next run of the job
// tries a schedule that failed again.
func (j *schedulesJob) tick(ctx context.Context, tenant string) (sum int, err error) {
	var failed []string
	for range scheduleRounds {
		step, err := j.store.TickSchedules(ctx, tenant, j.committer.Submit, failed)
		sum += step.Tasks
		if err != nil || step.Schedules == 0 {
			return sum, err
		}
		failed = append(failed, step.Failed...)
	}
	return sum, nil
}

func (j *schedulesJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		return j.store.DryRunSchedules(ctx, tenant)
	})
}
