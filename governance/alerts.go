package governance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// alerts evaluates the alert rules of each tenant that has some, and sends the notices that are
// due. It returns how many. A tenant in which nothing is going on is left alone until something
// happens there.
func (g *Governor) alerts(ctx context.Context) (int, error) {
	tenants := g.tenantsWithAlerts()
	if len(tenants) == 0 {
		return 0, nil
	}
	activity, err := g.alerted.read(ctx, g.store)
	if err != nil {
		return 0, err
	}
	restless := g.calm.restless(g.store.Catalog.Versions(), activity, g.store.Clock.Now())
	var sum int
	var errs []error
	for _, tenant := range tenants {
		state, ok := restless[tenant]
		if !ok {
			continue
		}
		n, calm, err := g.alertTenant(ctx, tenant)
		sum, errs = sum+n, append(errs, err)
		if err == nil && calm {
			g.calm.rest(tenant, state, time.Time{})
		}
	}
	return sum, errors.Join(errs...)
}

// tenantsWithAlerts returns the tenants that have the task type of alerts and aren't suspended. A
// suspended tenant can't get notices.
func (g *Governor) tenantsWithAlerts() []string {
	var all []string
	for tenant, types := range g.store.Catalog.Tenants() {
		if t := types[asyncflow.AlertType]; t != nil && !t.Suspended() {
			all = append(all, tenant)
		}
	}
	return all
}

// alertTenant evaluates the rules of a tenant, and sends its notices. calm reports that nothing is
// going on: another evaluation would find the same until rows are written or the configuration
// changes.
func (g *Governor) alertTenant(ctx context.Context, tenant string) (n int, calm bool, err error) {
	rules, ours, err := g.store.TakeAlertTurn(ctx, tenant)
	if err != nil || !ours {
		return 0, false, err
	}
	at := g.store.Clock.Now()
	found, err := g.readings(ctx, tenant, rules, at)
	episodes := 0
	if err == nil { // without readings no episode may end
		episodes, err = g.store.ObserveAlerts(ctx, tenant, found.all, at)
	}
	n, err2 := g.sendNotices(ctx, tenant)
	return n, !found.live && episodes == 0 && n == 0, errors.Join(err, err2)
}

// noticeWindow is how long the key of a notice stands for its task.
const noticeWindow = 7 * 24 * time.Hour

// sendNotices submits the tasks that report the tenant's episodes. Their keys ensure that there is
// one for each state of an episode, however often it is tried and by which node.
func (g *Governor) sendNotices(ctx context.Context, tenant string) (int, error) {
	unsent, err := g.store.EpisodesToNotify(ctx, tenant)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range unsent {
		for _, state := range e.PendingNotices() {
			result := g.tasks.SubmitNotice(ctx, tenant, asyncflow.NewTask{
				Type: asyncflow.AlertType, Context: e.Notice(tenant, state),
				Options:   asyncflow.Options{Key: e.ID + "/" + string(state)},
				KeyWindow: asyncflow.NewDuration(noticeWindow),
			})
			if result.Err != nil {
				return n, fmt.Errorf("the notice of episode %s of tenant %s: %w", e.ID, tenant, result.Err)
			}
			if err := g.store.RecordNotice(ctx, tenant, e.ID, state, result.ID); err != nil {
				return n, err
			}
			g.log.Warn("alert", "tenant", tenant, "alert", string(e.Alert), "subject", e.Subject,
				"state", string(state), "task", result.ID.String())
			n++
		}
	}
	return n, nil
}

// dryRunAlerts counts the notices that would be sent now.
func (g *Governor) dryRunAlerts(ctx context.Context) ([]store.Due, error) {
	return g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		if t := g.store.Catalog.TypesOf(tenant)[asyncflow.AlertType]; t == nil || t.Suspended() {
			return nil, nil
		}
		a, err := g.store.Alerts(ctx, tenant)
		if err != nil && asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
			return nil, nil
		}
		at := g.store.Clock.Now()
		found, err2 := g.readings(ctx, tenant, a.Rules, at)
		unsent, err3 := g.store.EpisodesToNotify(ctx, tenant)
		begun, over, err4 := g.store.DryRunAlerts(ctx, tenant, found.all, at)
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
}

func (r *readings) add(some ...asyncflow.AlertReading) { r.all = append(r.all, some...) }

// readings measures what a tenant's rules are about; for the operator's tenant also nodes, jobs
// and rolls.
func (g *Governor) readings(
	ctx context.Context, tenant string, rules asyncflow.AlertRules, at time.Time,
) (r readings, err error) {
	errs := []error{g.backlogs(ctx, &r, tenant, rules, at), g.failingSchedules(ctx, &r, tenant, at)}
	if rules.FailureRate > 0 {
		errs = append(errs, g.failureRates(ctx, &r, tenant, rules, at))
	}
	if rules.EndpointFailureRate > 0 {
		errs = append(errs, g.endpointFailures(ctx, &r, tenant, rules, at))
	}
	if tenant == asyncflow.OperatorTenant {
		r.live = true
		for _, read := range []func(context.Context, time.Time) ([]asyncflow.AlertReading, error){
			g.silentNodes, g.overdueJobs, g.overdueRolls,
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
