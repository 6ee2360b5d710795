package main

import (
	"errors"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
)

// jobFlags set when background jobs run.
type jobFlags struct {
	Job []string `env:"ASYNCFLOW_JOBS" sep:"none" placeholder:"NAME=SPEC"`
}

// timetable returns cron specs by job. An error names the invalid entry.
func (f jobFlags) timetable() (map[string]string, error) {
	timetable := map[string]string{}
	for _, text := range f.Job {
		for _, entry := range splitJobs(text) {
			name, spec, ok := strings.Cut(entry, "=")
			name = strings.TrimSpace(name)
			spec = strings.TrimSpace(spec)
			if _, twice := timetable[name]; !ok || twice {
				return nil, asyncflow.InvalidField("--job",
					"has %q; it must be NAME=SPEC, each job once, such as rescue=@every 5s,forget=off", entry)
			}
			timetable[name] = spec
		}
	}
	err := governance.CheckTimetable(timetable)
	if known := new(asyncflow.Error); errors.As(err, &known) {
		return nil, asyncflow.InvalidField("--job", "%s", known.Detail())
	}
	return timetable, err
}

// splitJobs splits a list at its commas, except for commas within a cron spec: a part without "="
// belongs to the entry before.
func splitJobs(text string) []string {
	var entries []string
	for part := range strings.SplitSeq(text, ",") {
		if n := len(entries); n > 0 && !strings.Contains(part, "=") {
			entries[n-1] += "," + part
			continue
		}
		entries = append(entries, part)
	}
	return entries
}
