// Package workercheck tries out a worker: it plays a dispatcher that sends the deliveries
// which are hard to get right, takes the reports on them, and says for each what the worker
// made of it. What it sends is made and read by package callbacks, as that of a node is.
package workercheck

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Config says what is tried out, and how.
type Config struct {
	URL         string // of the worker
	Type, Stage string
	// Secret signs the deliveries: whsec_… or whsk_….
	Secret string
	// Context is a context that the worker can work on; nil: {}.
	Context json.RawMessage
	// Batch is the most tasks of a request; 0: each has a request of its own.
	Batch int
	// Timeout is how long an answer may take; 0: 10 s.
	Timeout time.Duration
	// ReportTime is how long after a 202 the report may take, and how long a worker that was told
	// to stop is watched; 0: 30 s.
	ReportTime time.Duration
	// Deadline is how much time the delivery of the checks "heartbeats" and "cancel" has; 0: 3 s.
	Deadline time.Duration
	// Quiet is how long a call may still come that was under way when the worker was told to stop,
	// how long an answer that contradicts another is waited for, and how long a worker has to
	// notice that a request broke off; 0: 2 s.
	Quiet time.Duration
	// Egress is what the URL has to obey, as on a node.
	Egress asyncflow.Egress
	// Listen is the address on which reports are taken; "": a free port of 127.0.0.1.
	Listen string
	// CallbackURL is where the worker reaches that; "": by its address.
	CallbackURL string
	Version     string // for the User-Agent
}

func (c Config) withDefaults() Config {
	if len(c.Context) == 0 {
		c.Context = json.RawMessage("{}")
	}
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.ReportTime = cmp.Or(c.ReportTime, 30*time.Second)
	c.Deadline = cmp.Or(c.Deadline, 3*time.Second)
	c.Quiet = cmp.Or(c.Quiet, 2*time.Second)
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	return c
}

// Result is what came of a check.
type Result string

const (
	Passed        Result = "passed"
	Failed        Result = "failed"
	NotApplicable Result = "not_applicable" // the worker did nothing that could have gone wrong
)

// Check is one thing that was tried.
type Check struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	Detail string `json:"detail"`        // what the worker did
	Fix    string `json:"fix,omitempty"` // how to mend it, if it failed
}

// Report is the list of all that was tried.
type Report struct {
	URL    string  `json:"url"`
	Type   string  `json:"type"`
	Stage  string  `json:"stage"`
	Passed int     `json:"passed"`
	Failed int     `json:"failed"`
	Checks []Check `json:"checks"`
}

// check is something to try. The worker is expected to be well but for what is tried.
type check struct {
	name string
	fix  string
	run  func(ctx context.Context, r *rehearsal) finding
}

// groups are the checks in the order in which they are made, and the check without which
// those of a group would tell nothing.
var groups = []struct {
	needs  string
	checks []check
}{
	{"", []check{reached}},
	{reached.name, append([]check{delivered}, trust...)},
	{delivered.name, append(work, later...)},
}

// finding is what a check found.
type finding struct {
	result Result
	detail string
}

func passed(format string, args ...any) finding {
	return finding{Passed, fmt.Sprintf(format, args...)}
}
func failed(format string, args ...any) finding {
	return finding{Failed, fmt.Sprintf(format, args...)}
}
func notApplicable(format string, args ...any) finding {
	return finding{NotApplicable, fmt.Sprintf(format, args...)}
}

// Run tries out a worker. Its error says what is wrong with the Config, that reports can't
// be taken, or that ctx was over; whatever is wrong with the worker is in the Report. done,
// unless it is nil, is told of each check as it ends.
func Run(ctx context.Context, cfg Config, done func(Check)) (Report, error) {
	cfg = cfg.withDefaults()
	r, err := newRehearsal(cfg)
	if err != nil {
		return Report{}, err
	}
	defer r.desk.close()
	report := Report{URL: cfg.URL, Type: cfg.Type, Stage: cfg.Stage}
	well := map[string]bool{"": true}
	for _, g := range groups {
		for _, c := range g.checks {
			f := notApplicable("the check %q has to pass first", g.needs)
			if well[g.needs] {
				f = c.run(ctx, r)
			}
			if ctx.Err() != nil {
				return report, ctx.Err()
			}
			well[c.name] = f.result == Passed
			one := report.add(c, f)
			if done != nil {
				done(one)
			}
		}
	}
	return report, nil
}

func (r *Report) add(c check, f finding) Check {
	one := Check{Name: c.name, Result: f.result, Detail: f.detail}
	switch f.result {
	case Passed:
		r.Passed++
	case Failed:
		r.Failed++
		one.Fix = c.fix
	}
	r.Checks = append(r.Checks, one)
	return one
}
