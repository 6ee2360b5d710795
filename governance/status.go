package governance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// Status is how governance stands, as its nodes have written it down.
type Status struct {
	Jobs  []JobStatus
	Nodes []store.Node
}

// JobStatus is a job's last run that was recorded, and when it runs next. A node that
// runs it records a run that had nothing to do about once a minute.
type JobStatus struct {
	store.JobRun
	Next time.Time // zero when it is off, or no node is there to run it
}

// ReadStatus returns how governance stands on a database.
func ReadStatus(ctx context.Context, s *store.Store) (Status, error) {
	nodes, err := s.ListNodes(ctx)
	if err != nil {
		return Status{}, err
	}
	runs, err := s.Jobs(ctx)
	if err != nil {
		return Status{}, err
	}
	now, manned := s.Clock.Now(), slices.ContainsFunc(nodes, governs)
	status := Status{Nodes: nodes}
	for _, run := range inOrder(runs) {
		job := JobStatus{JobRun: run}
		if manned {
			job.Next = next(run.Spec, run.Started, now)
		}
		status.Jobs = append(status.Jobs, job)
	}
	return status, nil
}

// governs tells whether a node is there that runs jobs.
func governs(n store.Node) bool {
	return !n.Gone && slices.Contains(strings.Split(n.Roles, ","), "governance")
}

// inOrder returns the runs in the order of the jobs. One that no node has announced
// has its own schedule; those that this program doesn't know come last.
func inOrder(runs []store.JobRun) []store.JobRun {
	var all []store.JobRun
	for _, job := range new(Governor).standardJobs() {
		i := slices.IndexFunc(runs, func(r store.JobRun) bool { return r.Name == job.Name })
		if i < 0 {
			all = append(all, store.JobRun{Name: job.Name, Spec: job.Spec})
			continue
		}
		all = append(all, runs[i])
		runs = slices.Delete(runs, i, i+1)
	}
	return append(all, runs...)
}
