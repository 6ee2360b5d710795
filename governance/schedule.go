package governance

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/asyncflow/asyncflow"
)

// Off, in the place of a schedule, keeps a job from running by itself.
const Off = "off"

// shortest is the least time between two runs of a job.
const shortest = time.Second

// CheckSchedules tells what is wrong with schedules by job: CodeInvalid.
func CheckSchedules(schedules map[string]string) error {
	return schedule(new(Governor).standardJobs(), schedules)
}

// schedule gives jobs the schedules that are theirs.
func schedule(jobs []Job, schedules map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(schedules)) {
		i := slices.IndexFunc(jobs, func(j Job) bool { return j.Name == name })
		if i < 0 {
			return asyncflow.InvalidField("job", "is %q; the jobs are %s", name, names(jobs))
		}
		if err := checkSpec(name, schedules[name]); err != nil {
			return err
		}
		jobs[i].Spec = schedules[name]
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
		return asyncflow.InvalidField("job "+job, "has the schedule %q; it must be like @every 5s, or 30 3 * * * (minute, hour, day, month, weekday; in UTC), or off", spec)
	}
	if every, ok := strings.CutPrefix(spec, "@every "); ok {
		if d, _ := time.ParseDuration(every); d < shortest {
			return asyncflow.InvalidField("job "+job, "has the schedule %q; the shortest is @every %s", spec, shortest)
		}
	}
	return nil
}

// parse reads the schedule of a job that isn't off.
func parse(spec string) (cron.Schedule, error) {
	if strings.Contains(spec, "TZ=") && !strings.Contains(spec, " ") { // the parser panics
		return nil, errors.New("a time zone and no times")
	}
	return cron.ParseStandard(spec)
}

// next returns when a job runs next by its schedule, if it last began at last: zero if
// it is off. Runs that had nothing to do may have gone unrecorded since.
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
