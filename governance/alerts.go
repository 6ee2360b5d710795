package governance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// alerts holds the rules of each tenant that has some against what there is, and sends
// what is to be told. It returns how many notices there were.
func (g *Governor) alerts(ctx context.Context) (int, error) {
	var sum int
	var errs []error
	for _, tenant := range g.alerted() {
		n, err := g.alertTenant(ctx, tenant)
		sum, errs = sum+n, append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// alerted returns the tenants that may have alerts: those with their task type. One that
// is suspended couldn't be told.
func (g *Governor) alerted() []string {
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
	if err == nil { // else nothing is known: no episode may end by that
		err = g.store.ObserveAlerts(ctx, tenant, readings, at)
	}
	n, err2 := g.tell(ctx, tenant)
	return n, errors.Join(err, err2)
}

// noticeWindow is how long the key of a notice stands for its task.
const noticeWindow = asyncflow.Duration(7 * 24 * time.Hour)

// tell submits the tasks that tell of episodes. Their keys see to it that there is one
// for each, whoever tries again after whatever.
func (g *Governor) tell(ctx context.Context, tenant string) (int, error) {
	untold, err := g.store.UntoldEpisodes(ctx, tenant)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range untold {
		for _, state := range e.Untold() {
			result := g.tasks.SubmitNotice(ctx, tenant, asyncflow.NewTask{Type: asyncflow.AlertType, Context: e.Notice(tenant, state),
				Options: asyncflow.Options{Key: e.ID + "/" + string(state)}, KeyWindow: noticeWindow})
			if result.Err != nil {
				return n, fmt.Errorf("the notice of episode %s of tenant %s: %w", e.ID, tenant, result.Err)
			}
			if err := g.store.TellEpisode(ctx, tenant, e.ID, state, result.ID); err != nil {
				return n, err
			}
			g.log.Warn("alert", "tenant", tenant, "alert", string(e.Alert), "subject", e.Subject, "state", string(state), "task", result.ID.String())
			n++
		}
	}
	return n, nil
}

// lookAlerts counts the notices that would be sent now.
func (g *Governor) lookAlerts(ctx context.Context) ([]store.Due, error) {
	return g.lookTenants(func(tenant string) ([]store.Due, error) {
		if t := g.store.Catalog.TypesOf(tenant)[asyncflow.AlertType]; t == nil || t.Suspended() {
			return nil, nil
		}
		a, err := g.store.Alerts(ctx, tenant)
		if asyncflow.CodeOf(err) == asyncflow.CodeNotFound && err != nil {
			return nil, nil
		}
		at := g.store.Clock.Now()
		readings, err2 := g.readings(ctx, tenant, a.Rules, at)
		untold, err3 := g.store.UntoldEpisodes(ctx, tenant)
		begun, over, err4 := g.store.LookAlerts(ctx, tenant, readings, at)
		n := begun + over
		for _, e := range untold {
			n += len(e.Untold())
		}
		return []store.Due{{Tenant: tenant, Type: asyncflow.AlertType, Rows: n}}, errors.Join(err, err2, err3, err4)
	})
}

// readings measures what a tenant's rules are about; for the operator's tenant also
// what lies above the tenants.
func (g *Governor) readings(ctx context.Context, tenant string, rules asyncflow.AlertRules, at time.Time) ([]asyncflow.AlertReading, error) {
	var all []asyncflow.AlertReading
	var errs []error
	measure := func(wanted bool, read func() ([]asyncflow.AlertReading, error)) {
		if wanted {
			some, err := read()
			all, errs = append(all, some...), append(errs, err)
		}
	}
	operator := tenant == asyncflow.OperatorTenant
	measure(true, func() ([]asyncflow.AlertReading, error) { return g.backlogs(ctx, tenant, rules, at) })
	measure(rules.FailureRate > 0, func() ([]asyncflow.AlertReading, error) { return g.failureRates(ctx, tenant, rules, at) })
	measure(rules.EndpointFailureRate > 0, func() ([]asyncflow.AlertReading, error) { return g.endpointFailures(ctx, tenant, rules, at) })
	measure(operator, func() ([]asyncflow.AlertReading, error) { return g.silentNodes(ctx, at) })
	measure(operator, func() ([]asyncflow.AlertReading, error) { return g.overdueJobs(ctx, at) })
	measure(operator, func() ([]asyncflow.AlertReading, error) { return g.overdueRolls(ctx, at) })
	return all, errors.Join(errs...)
}

func (g *Governor) silentNodes(ctx context.Context, at time.Time) ([]asyncflow.AlertReading, error) {
	nodes, err := g.store.ListNodes(ctx)
	var all []asyncflow.AlertReading
	for _, n := range nodes {
		all = append(all, asyncflow.AlertReading{Alert: asyncflow.AlertNodeGone, Subject: n.ID,
			Value: seconds(at.Sub(n.Seen)), Limit: asyncflow.NodeGoneLimit.Seconds()})
	}
	return all, err
}

// overdueJobs tells how long ago each job should have ended well, by its schedule; one
// that never has, since the first node that is there was started.
func (g *Governor) overdueJobs(ctx context.Context, at time.Time) ([]asyncflow.AlertReading, error) {
	status, err := ReadStatus(ctx, g.store)
	var all []asyncflow.AlertReading
	begin := at
	for _, n := range status.Nodes {
		if governs(n) && n.Started.Before(begin) {
			begin = n.Started
		}
	}
	for _, job := range status.Jobs {
		spec, err := parse(job.Spec)
		if err != nil { // it is off
			continue
		}
		last := job.Succeeded
		if last.IsZero() {
			last = begin
		}
		all = append(all, asyncflow.AlertReading{Alert: asyncflow.AlertJobOverdue, Subject: job.Name,
			Value: seconds(at.Sub(spec.Next(last.UTC()))), Limit: asyncflow.JobOverdueLimit.Seconds()})
	}
	return all, err
}

// overdueRolls tells of the types with tasks that are still leased from an old roll, for
// how long there has been a newer one.
func (g *Governor) overdueRolls(ctx context.Context, at time.Time) ([]asyncflow.AlertReading, error) {
	var all []asyncflow.AlertReading
	var errs []error
	for t := range g.store.Catalog.Types() {
		if t.Begin == t.End {
			continue
		}
		opened, err := g.store.RollOpened(ctx, t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, asyncflow.AlertReading{Alert: asyncflow.AlertRollOverdue, Subject: t.Tenant + "/" + t.Name,
			Value: seconds(at.Sub(opened)), Limit: asyncflow.RollOverdueLimit.Seconds()})
	}
	return all, errors.Join(errs...)
}

// seconds returns a time in seconds to the millisecond, and 0 for one ahead.
func seconds(d time.Duration) float64 { return max(0, d).Round(time.Millisecond).Seconds() }
