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

// Off, in place of a cron spec, keeps a job from running by itself.
const Off = "off"

// shortest is the least time between two runs of a job.
const shortest = time.Second

// CheckTimetable checks a timetable, cron specs by job. Its errors are CodeInvalid.
func CheckTimetable(specs map[string]string) error {
	return setTimes(new(standardJobs).list(), specs)
}

// setTimes sets the times of those jobs that specs names.
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
		if d, _ := time.ParseDuration(every); d < shortest {
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
