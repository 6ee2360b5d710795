package governance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// alertsJob evaluates the alert rules of each tenant with some, and sends the notices that are due.
// A tenant in which nothing is going on is left alone until something happens there.
type alertsJob struct {
	visits
	committer Committer
}

// run returns how many notices it sent.
func (j *alertsJob) run(ctx context.Context) (int, error) {
	tenants := j.tenantsWithAlerts()
	if len(tenants) == 0 {
		return 0, nil
	}
	restless, err := j.restless(ctx)
	if err != nil {
		return 0, err
	}
	var sum int
	var errs []error
	for _, tenant := range tenants {
		state, ok := restless[tenant]
		if !ok {
			continue
		}
		n, quiet, err := j.alertTenant(ctx, tenant)
		sum += n
		errs = append(errs, err)
		if err == nil && quiet {
			j.rests.rest(tenant, state, time.Time{})
		}
	}
	return sum, errors.Join(errs...)
}

// tenantsWithAlerts returns the tenants with the task type of alerts that aren't suspended. A
// suspended tenant can't get notices.
func (j *alertsJob) tenantsWithAlerts() []string {
	var all []string
	for tenant, types := range j.store.Catalog.Tenants() {
		if t := types[asyncflow.AlertType]; t != nil && !t.Suspended() {
			all = append(all, tenant)
		}
	}
	return all
}

// alertTenant evaluates the rules of a tenant, and sends its notices. quiet reports that nothing
// is going on: another evaluation would find the same until rows are written or the configuration
// changes.
func (j *alertsJob) alertTenant(ctx context.Context, tenant string) (n int, quiet bool, err error) {
	rules, ours, err := j.store.TakeAlertTurn(ctx, tenant)
	if err != nil || !ours {
		return 0, false, err
	}
	at := j.store.Clock.Now()
	live, episodes, err := j.observe(ctx, tenant, rules, at)
	n, err2 := j.sendNotices(ctx, tenant)
	return n, !live && episodes == 0 && n == 0, errors.Join(err, err2)
}

// observe takes the readings of a tenant and notes the episodes that they begin and end. Without
// readings no episode may end. live reports that something is going on.
func (j *alertsJob) observe(
	ctx context.Context, tenant string, rules asyncflow.AlertRules, at time.Time,
) (live bool, episodes int, err error) {
	found, err := j.readings(ctx, tenant, rules, at)
	if err != nil {
		return found.live, 0, err
	}
	j.nameTasks(ctx, tenant, &found, rules, at)
	episodes, err = j.store.ObserveAlerts(ctx, tenant, found.all, at)
	return found.live, episodes, err
}

// noticeWindow is how long the key of a notice stands for its task.
const noticeWindow = 7 * 24 * time.Hour

// sendNotices submits the tasks that report the tenant's episodes. Their keys ensure that there is
// one for each state of an episode, however often it is tried and by which node.
func (j *alertsJob) sendNotices(ctx context.Context, tenant string) (int, error) {
	unsent, err := j.store.EpisodesToNotify(ctx, tenant)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range unsent {
		for _, state := range e.PendingNotices() {
			result := j.committer.SubmitNotice(ctx, tenant, asyncflow.NewTask{
				Type: asyncflow.AlertType, Context: e.Notice(tenant, state),
				Options:   asyncflow.Options{Key: e.ID + "/" + string(state)},
				KeyWindow: asyncflow.KeyFor(noticeWindow),
			})
			if result.Err != nil {
				return n, fmt.Errorf("the notice of episode %s of tenant %s: %w", e.ID, tenant,
					result.Err)
			}
			if err := j.store.RecordNotice(ctx, tenant, e.ID, state, result.ID); err != nil {
				return n, err
			}
			j.log.Warn("alert", "tenant", tenant, "alert", string(e.Alert), "subject", e.Subject,
				"state", string(state), "task", result.ID.String())
			n++
		}
	}
	return n, nil
}

// dryRun counts the notices that would be sent now.
func (j *alertsJob) dryRun(ctx context.Context) ([]store.Due, error) {
	return j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		if t := j.store.Catalog.TypesOf(tenant)[asyncflow.AlertType]; t == nil || t.Suspended() {
			return nil, nil
		}
		a, err := j.store.Alerts(ctx, tenant)
		if err != nil && asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
			return nil, nil
		}
		at := j.store.Clock.Now()
		found, err2 := j.readings(ctx, tenant, a.Rules, at)
		unsent, err3 := j.store.EpisodesToNotify(ctx, tenant)
		begun, over, err4 := j.store.DryRunAlerts(ctx, tenant, found.all, at)
		n := begun + over
		for _, e := range unsent {
			n += len(e.PendingNotices())
		}
		due := []store.Due{{Tenant: tenant, Type: asyncflow.AlertType, Rows: n}}
		return due, errors.Join(err, err2, err3, err4)
	})
}

// readings are what a tenant's rules are about.
type readings struct {
	all []asyncflow.AlertReading
	// live reports whether time alone may change them.
	live bool
	// standIns say by which task a reading can be represented.
	standIns map[alertSubject]standIn
}

func (r *readings) add(some ...asyncflow.AlertReading) { r.all = append(r.all, some...) }

// readings measures what a tenant's rules are about; for the operator's tenant also nodes, jobs
// and rolls.
func (j *alertsJob) readings(
	ctx context.Context, tenant string, rules asyncflow.AlertRules, at time.Time,
) (r readings, err error) {
	errs := []error{j.backlogs(ctx, &r, tenant, rules, at), j.failingSchedules(ctx, &r, tenant, at)}
	if rules.FailedForGood > 0 || rules.FailedInTotal > 0 {
		errs = append(errs, j.failedForGood(ctx, &r, tenant, rules, at))
	}
	if rules.BlockedKey.Std() > 0 {
		errs = append(errs, j.blockedKeys(ctx, &r, tenant, rules, at))
	}
	if rules.WillExpire > 0 {
		errs = append(errs, j.willExpire(ctx, &r, tenant, rules, at))
	}
	if rules.FailureRate > 0 {
		errs = append(errs, j.failureRates(ctx, &r, tenant, rules, at))
	}
	if rules.EndpointFailureRate > 0 {
		errs = append(errs, j.endpointFailures(ctx, &r, tenant, rules, at))
	}
	if tenant == asyncflow.OperatorTenant {
		r.live = true
		for _, read := range []func(context.Context, time.Time) ([]asyncflow.AlertReading, error){
			j.silentNodes, j.overdueJobs, j.overdueRolls,
		} {
			some, err := read(ctx, at)
			r.add(some...)
			errs = append(errs, err)
		}
	}
	return r, errors.Join(errs...)
}

// seconds returns a time in seconds, rounded to the millisecond; 0 if it is negative.
func seconds(d time.Duration) float64 { return max(0, d).Round(time.Millisecond).Seconds() }

// silentNodes reads for how long each node is silent.
func (j *alertsJob) silentNodes(
	ctx context.Context, at time.Time,
) ([]asyncflow.AlertReading, error) {
	nodes, err := j.store.ListNodes(ctx)
	var all []asyncflow.AlertReading
	for _, n := range nodes {
		all = append(all, asyncflow.AlertReading{
			Alert: asyncflow.AlertNodeGone, Subject: n.ID,
			Value: seconds(at.Sub(n.Seen)), Limit: asyncflow.NodeGoneLimit.Seconds(),
		})
	}
	return all, err
}

// overdueJobs reads how late the next success of each job is, by its times.
func (j *alertsJob) overdueJobs(
	ctx context.Context, at time.Time,
) ([]asyncflow.AlertReading, error) {
	status, err := ReadStatus(ctx, j.store)
	var all []asyncflow.AlertReading
	for _, job := range status.Jobs {
		late, known := status.Late(job, at)
		if !known {
			continue
		}
		all = append(all, asyncflow.AlertReading{
			Alert: asyncflow.AlertJobOverdue, Subject: job.Name,
			Value: seconds(late),
			Limit: asyncflow.JobOverdueLimit.Seconds(),
		})
	}
	return all, err
}

// overdueRolls reads, for each table set that is still leased from an old roll, how long ago the
// newer one was opened.
func (j *alertsJob) overdueRolls(
	ctx context.Context, at time.Time,
) ([]asyncflow.AlertReading, error) {
	var all []asyncflow.AlertReading
	var errs []error
	for tenant := range j.store.Catalog.Tenants() {
		for name, set := range j.store.Catalog.SetsOf(tenant) {
			if set.Begin >= set.End {
				continue
			}
			opened, err := j.store.RollOpened(ctx, set)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			subject := tenant
			if !set.Shared() {
				subject += "/" + name
			}
			all = append(all, asyncflow.AlertReading{
				Alert: asyncflow.AlertRollOverdue, Subject: subject,
				Value: seconds(at.Sub(opened)), Limit: asyncflow.RollOverdueLimit.Seconds(),
			})
		}
	}
	return all, errors.Join(errs...)
}
