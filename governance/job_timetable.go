package governance

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Off, in place of a cron spec, keeps a job from running by itself.
const Off = "off"

// shortest is the least time between two runs of a job.
const shortest = time.Second

// CheckTimetable checks a timetable, cron specs by job. Its errors are CodeInvalid.
func CheckTimetable(specs map[string]string) error {
	return setTimes(new(standardJobs).list(), specs)
}

// setTimes sets the times of the jobs that specs names.
func setTimes(jobs []Job, specs map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		i := slices.IndexFunc(jobs, func(j Job) bool { return j.Name == name })
		if i < 0 {
			return asyncflow.InvalidField("job", "is %q; the jobs are %s", name, names(jobs))
		}
		if err := checkSpec(name, specs[name]); err != nil {
			return err
		}
		jobs[i].Spec = specs[name]
	}
	return nil
}

func names(jobs []Job) string {
	all := make([]string, len(jobs))
	for i, job := range jobs {
		all[i] = job.Name
	}
	return strings.Join(all, ", ")
}

func checkSpec(job, spec string) error {
	if spec == Off {
		return nil
	}
	if _, err := parse(spec); err != nil {
		return asyncflow.InvalidField("job "+job, "has the times %q; it must be like @every 5s, "+
			"or 30 3 * * * (minute, hour, day, month, weekday; in UTC), or off", spec)
	}
	if every, ok := strings.CutPrefix(spec, "@every "); ok {
		if d, _ := asyncflow.ParseDuration(every); d < shortest {
			return asyncflow.InvalidField("job "+job,
				"has the times %q; the shortest is @every %s", spec, shortest)
		}
	}
	return nil
}

// parse parses the spec of a job that isn't off.
func parse(spec string) (cron.Schedule, error) {
	if strings.Contains(spec, "TZ=") && !strings.Contains(spec, " ") { // the parser panics
		return nil, errors.New("a time zone and no times")
	}
	if every, ok := strings.CutPrefix(spec, "@every "); ok { // the parser knows no days
		d, err := asyncflow.ParseDuration(every)
		return cron.Every(d), err
	}
	return cron.ParseStandard(spec)
}

// next returns when a job with this spec runs next, if its last recorded run began at last. It
// returns zero if the job is off. Later runs that had nothing to do may be unrecorded.
func next(spec string, last, now time.Time) time.Time {
	s, err := parse(spec)
	if err != nil {
		return time.Time{}
	}
	if at := s.Next(last.UTC()); !last.IsZero() && at.After(now) {
		return at
	}
	return s.Next(now.UTC())
}

// Status is the state of governance, as its nodes recorded it.
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

// Late returns how long before a time the success of a job was due, by its times; less than zero:
// it isn't due yet. A job that never succeeded counts from the start of the oldest live node that
// runs jobs. The result is unknown for a job that is off.
func (s Status) Late(job JobStatus, at time.Time) (late time.Duration, known bool) {
	times, err := parse(job.Spec)
	if err != nil {
		return 0, false
	}
	last := job.Succeeded
	if last.IsZero() {
		last = at
		for _, n := range s.Nodes {
			if governs(n) && n.Started.Before(last) {
				last = n.Started
			}
		}
	}
	return at.Sub(times.Next(last.UTC())), true
}

// governs reports whether a node is alive and runs jobs.
func governs(n store.Node) bool {
	return !n.Gone && slices.Contains(strings.Split(n.Roles, ","), "governance")
}

// inOrder returns the runs in the order of the standard jobs. A job that no node announced runs at
// its default times; jobs that this program doesn't know come last.
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
