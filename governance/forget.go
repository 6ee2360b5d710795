package governance

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// forgetJob deletes the rows of nodes that are gone, operations and episodes of alerts that ended
// long ago, old minutes of endpoints, expired signing secrets, windows of claimers that are over,
// checkpoints of stages that are done, signals that nobody took, expired tokens, and entries of the
// audit that are older than its retention. It visits the tenants with new rows, or with some that
// became old.
type forgetJob struct {
	visits
	retention time.Duration // of the audit; 0: for ever
}

func (j *forgetJob) run(ctx context.Context) (int, error) {
	j.attention.tidy(j.store.Catalog.Tenants())
	sum, err := j.store.ForgetNodes(ctx)
	audit, err2 := j.forgetAudit(ctx, "")
	tokens, err3 := untilDone(func() (int, error) { return j.store.ForgetTokens(ctx) })
	sum += audit + tokens
	errs := []error{err, err2, err3}
	restless, err := j.restless(ctx)
	errs = append(errs, err)
	for tenant, state := range restless {
		n, err := j.forgetTenant(ctx, tenant, state)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// forgetTenant deletes the old rows of a tenant. The tenant rests until more rows become old.
func (j *forgetJob) forgetTenant(ctx context.Context, tenant string, s state) (int, error) {
	first, err := j.store.FirstForget(ctx, tenant, j.retention)
	if err != nil {
		return 0, err
	}
	if first.IsZero() || first.After(j.store.Clock.Now()) {
		j.rests.rest(tenant, s, first)
		return 0, nil
	}
	sum, errs := 0, []error{}
	for _, forget := range []func(context.Context, string) (int, error){
		j.store.ForgetOperations, j.store.ForgetEpisodes, j.store.ForgetMinutes,
		j.store.ForgetSecrets, j.forgetClaims, j.forgetCheckpoints, j.forgetSignals,
		j.forgetAudit,
	} {
		n, err := forget(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

func (j *forgetJob) forgetClaims(ctx context.Context, tenant string) (int, error) {
	return untilDone(func() (int, error) { return j.store.ForgetClaims(ctx, tenant) })
}

func (j *forgetJob) forgetCheckpoints(ctx context.Context, tenant string) (int, error) {
	return untilDone(func() (int, error) { return j.store.ForgetCheckpoints(ctx, tenant) })
}

func (j *forgetJob) forgetSignals(ctx context.Context, tenant string) (int, error) {
	return untilDone(func() (int, error) { return j.store.ForgetSignals(ctx, tenant) })
}

// forgetAudit deletes the entries older than the retention from a tenant's audit, or from the
// operator's ("").
func (j *forgetJob) forgetAudit(ctx context.Context, tenant string) (int, error) {
	if j.retention == 0 {
		return 0, nil
	}
	return untilDone(func() (int, error) { return j.store.ForgetAudit(ctx, tenant, j.retention) })
}

func (j *forgetJob) dryRun(ctx context.Context) ([]store.Due, error) {
	nodes, err := j.store.DryRunForgetNodes(ctx)
	audit, err1 := j.dryRunForgetAudit(ctx, "")
	tokens, err3 := j.store.DryRunForgetTokens(ctx)
	due, err2 := j.dryRunTenants(func(tenant string) ([]store.Due, error) {
		due, err := j.store.DryRunForgetOperations(ctx, tenant)
		episodes, err2 := j.store.DryRunForgetEpisodes(ctx, tenant)
		minutes, err3 := j.store.DryRunForgetMinutes(ctx, tenant)
		entries, err4 := j.dryRunForgetAudit(ctx, tenant)
		secrets, err5 := j.store.DryRunForgetSecrets(ctx, tenant)
		windows, err6 := j.store.DryRunForgetClaims(ctx, tenant)
		checkpoints, err7 := j.store.DryRunForgetCheckpoints(ctx, tenant)
		signals, err8 := j.store.DryRunForgetSignals(ctx, tenant)
		due = append(due,
			store.Due{Tenant: tenant, Type: asyncflow.AlertType, Rows: episodes},
			store.Due{Tenant: tenant, Rows: minutes + entries + secrets + windows +
				checkpoints + signals})
		return due, errors.Join(err, err2, err3, err4, err5, err6, err7, err8)
	})
	all := append([]store.Due{{Rows: nodes + audit + tokens}}, due...)
	return withoutEmpty(all), errors.Join(err, err1, err2, err3)
}

func (j *forgetJob) dryRunForgetAudit(ctx context.Context, tenant string) (int, error) {
	if j.retention == 0 {
		return 0, nil
	}
	return j.store.DryRunForgetAudit(ctx, tenant, j.retention)
}
