package governance

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// Status is the state of governance, as its nodes have recorded it.
type Status struct {
	Jobs  []JobStatus
	Nodes []store.Node
}

// JobStatus is a job's last recorded run, and when it runs next. Nodes record a run that had
// nothing to do about once a minute.
type JobStatus struct {
	store.JobRun
	Next time.Time // zero if the job is off, or no node runs jobs
}

// ReadStatus returns the state of governance on a database.
func ReadStatus(ctx context.Context, s *store.Store) (Status, error) {
	nodes, err := s.ListNodes(ctx)
	if err != nil {
		return Status{}, err
	}
	runs, err := s.Jobs(ctx)
	if err != nil {
		return Status{}, err
	}
	now := s.Clock.Now()
	governed := slices.ContainsFunc(nodes, governs)
	status := Status{Nodes: nodes}
	for _, run := range inOrder(runs) {
		job := JobStatus{JobRun: run}
		if governed {
			job.Next = next(run.Spec, run.Started, now)
		}
		status.Jobs = append(status.Jobs, job)
	}
	return status, nil
}

// governs reports whether a node is alive and runs jobs.
func governs(n store.Node) bool {
	return !n.Gone && slices.Contains(strings.Split(n.Roles, ","), "governance")
}

// inOrder returns the runs in the order of the standard jobs. A job that no node has announced
// has its default times; jobs that this program doesn't know come last.
func inOrder(runs []store.JobRun) []store.JobRun {
	var all []store.JobRun
	for _, job := range new(standardJobs).list() {
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
