package governance

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Bounds of the search for the tasks of the alerts of a tenant that begin at a time. Further alerts
// begin without a task.
const (
	maxAlertReads = 100             // statements
	alertReadTime = 5 * time.Second // the notices of all tenants wait for it
)

// alertSubject is what a reading is about.
type alertSubject struct {
	kind    asyncflow.AlertKind
	subject string
}

// standIn says which task represents a reading: the task of a type that became due at a time, or
// if due is zero, one that failed lately.
type standIn struct {
	typ string
	due time.Time
}

// represent notes which task represents a reading.
func (r *readings) represent(kind asyncflow.AlertKind, subject string, by standIn) {
	if r.standIns == nil {
		r.standIns = map[alertSubject]standIn{}
	}
	r.standIns[alertSubject{kind, subject}] = by
}

// nameTasks adds the tasks that represent the readings that begin an episode, with their labels. An
// alert without them is better than none, so that failed reads are only logged.
func (j *alertsJob) nameTasks(
	ctx context.Context, tenant string, found *readings, rules asyncflow.AlertRules, at time.Time,
) {
	begun, err := j.store.BeginningAlerts(ctx, tenant, found.all, at)
	if err != nil {
		j.log.Warn("the tasks of alerts couldn't be named", "tenant", tenant, "error", err)
		return
	}
	begins := map[alertSubject]bool{}
	for _, r := range begun {
		begins[alertSubject{r.Alert, r.Subject}] = true
	}
	ctx, cancel := context.WithTimeout(ctx, alertReadTime)
	defer cancel()
	n := alertNamer{j: j, tenant: tenant, failedSince: at.Add(-rules.FailedPeriod()),
		left: maxAlertReads}
	for i := range found.all {
		r := &found.all[i]
		subject := alertSubject{r.Alert, r.Subject}
		if !begins[subject] {
			continue
		}
		err := n.nameKeys(ctx, r)
		if by, ok := found.standIns[subject]; ok && err == nil {
			err = n.nameTask(ctx, r, by)
		}
		if err != nil {
			j.log.Warn("the task of an alert couldn't be named", "tenant", tenant,
				"alert", string(r.Alert), "subject", r.Subject, "error", err)
		}
	}
}

// alertNamer reads tasks for the alerts of a tenant.
type alertNamer struct {
	j           *alertsJob
	tenant      string
	failedSince time.Time
	left        int // of maxAlertReads
}

// nameKeys adds the labels of the tasks that flow keys wait for.
func (n *alertNamer) nameKeys(ctx context.Context, r *asyncflow.AlertReading) error {
	if r.Detail == nil {
		return nil
	}
	for i := range r.Detail.Keys {
		k := &r.Detail.Keys[i]
		id, err := asyncflow.ParseTaskID(k.Task)
		if err != nil {
			return err
		}
		task, err := n.read(ctx, id)
		if err != nil {
			return err
		}
		k.TaskKey, k.Labels = task.Key, task.Labels
	}
	return nil
}

// nameTask adds the task that represents a reading.
func (n *alertNamer) nameTask(
	ctx context.Context, r *asyncflow.AlertReading, by standIn,
) error {
	id, err := n.find(ctx, by)
	if err != nil || id.Number == 0 {
		return err
	}
	task, err := n.read(ctx, id)
	if err != nil || task.ID == "" {
		return err
	}
	detail := asyncflow.AlertDetail{}
	if r.Detail != nil { // several readings may share it
		detail = *r.Detail
	}
	detail.Task = &task
	r.Detail = &detail
	return nil
}

// find returns the id of the task that represents a reading; none if it isn't found.
func (n *alertNamer) find(ctx context.Context, by standIn) (id asyncflow.TaskID, err error) {
	if n.left--; n.left < 0 {
		return id, nil
	}
	if !by.due.IsZero() {
		return n.j.store.DueSince(ctx, n.tenant, by.typ, by.due)
	}
	page, err := n.j.store.TaskPage(ctx, n.tenant, store.Filter{Type: by.typ,
		Status: asyncflow.StatusFailed, EndedSince: n.failedSince, Limit: 1})
	if err != nil || len(page.Tasks) == 0 {
		return id, err
	}
	return page.Tasks[0].ID, nil
}

// read returns a task; none if too many were read.
func (n *alertNamer) read(
	ctx context.Context, id asyncflow.TaskID,
) (asyncflow.AlertTask, error) {
	if n.left--; n.left < 0 {
		return asyncflow.AlertTask{}, nil
	}
	return n.j.store.AlertTask(ctx, n.tenant, id)
}
