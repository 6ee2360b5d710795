package governance

import (
	"context"
	"errors"
	"time"

	"github.com/asyncflow/asyncflow"
)

// silentNodes reads how long each node has been silent.
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

// overdueJobs reads how long ago each job should have succeeded, by its times. A job that never
// has counts from the start of the oldest live node that runs jobs.
func (j *alertsJob) overdueJobs(
	ctx context.Context, at time.Time,
) ([]asyncflow.AlertReading, error) {
	status, err := ReadStatus(ctx, j.store)
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
		all = append(all, asyncflow.AlertReading{
			Alert: asyncflow.AlertJobOverdue, Subject: job.Name,
			Value: seconds(at.Sub(spec.Next(last.UTC()))), Limit: asyncflow.JobOverdueLimit.Seconds(),
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
