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
// due. It returns how many.
func (g *Governor) alerts(ctx context.Context) (int, error) {
	var sum int
	var errs []error
	for _, tenant := range g.tenantsWithAlerts() {
		n, err := g.alertTenant(ctx, tenant)
		sum, errs = sum+n, append(errs, err)
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

func (g *Governor) alertTenant(ctx context.Context, tenant string) (int, error) {
	rules, ours, err := g.store.TakeAlertTurn(ctx, tenant)
	if err != nil || !ours {
		return 0, err
	}
	at := g.store.Clock.Now()
	readings, err := g.readings(ctx, tenant, rules, at)
	if err == nil { // without readings no episode may end
		err = g.store.ObserveAlerts(ctx, tenant, readings, at)
	}
	n, err2 := g.sendNotices(ctx, tenant)
	return n, errors.Join(err, err2)
}

// noticeWindow is how long the key of a notice stands for its task.
const noticeWindow = asyncflow.Duration(7 * 24 * time.Hour)

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
				KeyWindow: noticeWindow,
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
		readings, err2 := g.readings(ctx, tenant, a.Rules, at)
		unsent, err3 := g.store.EpisodesToNotify(ctx, tenant)
		begun, over, err4 := g.store.DryRunAlerts(ctx, tenant, readings, at)
		n := begun + over
		for _, e := range unsent {
			n += len(e.PendingNotices())
		}
		due := []store.Due{{Tenant: tenant, Type: asyncflow.AlertType, Rows: n}}
		return due, errors.Join(err, err2, err3, err4)
	})
}

// readings measures what a tenant's rules are about; for the operator's tenant also nodes, jobs
// and rolls.
func (g *Governor) readings(
	ctx context.Context, tenant string, rules asyncflow.AlertRules, at time.Time,
) ([]asyncflow.AlertReading, error) {
	var all []asyncflow.AlertReading
	var errs []error
	add := func(some []asyncflow.AlertReading, err error) {
		all, errs = append(all, some...), append(errs, err)
	}
	add(g.backlogs(ctx, tenant, rules, at))
	if rules.FailureRate > 0 {
		add(g.failureRates(ctx, tenant, rules, at))
	}
	if rules.EndpointFailureRate > 0 {
		add(g.endpointFailures(ctx, tenant, rules, at))
	}
	if tenant == asyncflow.OperatorTenant {
		add(g.silentNodes(ctx, at))
		add(g.overdueJobs(ctx, at))
		add(g.overdueRolls(ctx, at))
	}
	return all, errors.Join(errs...)
}

// seconds returns a time in seconds, rounded to the millisecond; 0 if it is negative.
func seconds(d time.Duration) float64 { return max(0, d).Round(time.Millisecond).Seconds() }
