// Package workercheck tries out a worker. It plays the node: it sends the deliveries that are hard
// to get right, receives the reports on them, and says for each what the worker did. It sends and
// reads through package callbacks, as a node does.
package workercheck

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// Config says what to try out, and how.
type Config struct {
	URL         string // of the worker
	Type, Stage string
	// OnFinal lets events of on_final be sent, in place of deliveries.
	OnFinal bool
	// Secret signs the deliveries: whsec_… or whsk_….
	Secret string
	// Context is a context that the worker can process; nil: {}.
	Context json.RawMessage
	// Input and Outputs are in all deliveries, as if the stage asked for them by deliver; nil: they
	// are only in that of the check "fields of stages".
	Input   json.RawMessage
	Outputs map[string]json.RawMessage // by stage
	// Links are the decisions that all deliveries carry links to, by the stage that would wait;
	// nil: they are only in that of the check "fields of stages". The links lead nowhere.
	Links map[string][]string
	// Checkpoint is one as the worker might leave; nil: {}.
	Checkpoint json.RawMessage
	// Batch is the most tasks of a request; 0: the worker gets no batches.
	Batch int
	// Timeout is how long an answer may take; 0: 10 s.
	Timeout time.Duration
	// ReportTime is how long after a 202 the report may take; 0: 30 s.
	ReportTime time.Duration
	// Watch is how long a worker is watched after it should have stopped; 0: ReportTime.
	Watch time.Duration
	// Deadline is how much time the deliveries of the checks "heartbeats" and "cancel" get; 0: 3 s.
	Deadline time.Duration
	// Quiet is a short wait; 0: 2 s. A call may still come that was in flight when the worker was
	// told to stop; a contradicting answer may follow; a worker must notice that a request broke
	// off.
	Quiet time.Duration
	// Egress is the policy that the URL must obey, as on a node.
	Egress asyncflow.Egress
	// Listen is the address that receives the reports; "": a free port of 127.0.0.1.
	Listen string
	// CallbackURL is where the worker reaches that address; "": at the address itself.
	CallbackURL string
	Version     string // for the User-Agent
}

func (c Config) withDefaults() Config {
	if len(c.Context) == 0 {
		c.Context = json.RawMessage("{}")
	}
	if len(c.Checkpoint) == 0 {
		c.Checkpoint = json.RawMessage("{}")
	}
	if c.OnFinal { // the events are about tasks of some type
		c.Type = cmp.Or(c.Type, "verify")
		c.Stage = cmp.Or(c.Stage, "stage")
	}
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.ReportTime = cmp.Or(c.ReportTime, 30*time.Second)
	c.Watch = cmp.Or(c.Watch, c.ReportTime)
	c.Deadline = cmp.Or(c.Deadline, 3*time.Second)
	c.Quiet = cmp.Or(c.Quiet, 2*time.Second)
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	return c
}

// Result is the result of a check.
type Result string

const (
	Passed        Result = "passed"
	Failed        Result = "failed"
	NotApplicable Result = "not_applicable" // the worker did nothing that the check is about
)

// Check is one check and its result.
type Check struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	Detail string `json:"detail"`        // what the worker did
	Fix    string `json:"fix,omitempty"` // how to fix the worker, if the check failed
}

// Report lists all checks.
type Report struct {
	URL    string  `json:"url"`
	Type   string  `json:"type"`
	Stage  string  `json:"stage"`
	Passed int     `json:"passed"`
	Failed int     `json:"failed"`
	Checks []Check `json:"checks"`
}

// check is something to try. Apart from it, the worker is expected to work.
type check struct {
	name string
	fix  string
	run  func(ctx context.Context, r *rehearsal) finding
}

// groups are the checks in their order. If the check that a group needs hasn't passed, the group
// would say nothing.
var groups = []struct {
	needs  string
	checks []check
}{
	{"", []check{reached}},
	{reached.name, append([]check{delivered}, trust...)},
	{delivered.name, append(work, reporting...)},
}

// finding is the result of a check, and the reason.
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

// Run tries out a worker. The faults of the worker are in the Report. The error says that the
// Config is invalid, that no reports can be received, or that ctx ended. Run calls done, unless it
// is nil, after each check.
func Run(ctx context.Context, cfg Config, done func(Check)) (Report, error) {
	cfg = cfg.withDefaults()
	r, err := newRehearsal(cfg)
	if err != nil {
		return Report{}, err
	}
	defer r.callbacks.close()
	report := Report{URL: cfg.URL, Type: cfg.Type, Stage: cfg.Stage}
	well := map[string]bool{"": true}
	all := groups
	if cfg.OnFinal {
		all = finals
	}
	for _, g := range all {
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

// maxReport bounds a report in bytes.
const maxReport = asyncflow.DefaultMaxContext + 16<<10

// The kinds of reports.
const (
	verbComplete  = "complete"
	verbFail      = "fail"
	verbSnooze    = "snooze"
	verbHeartbeat = "heartbeat"
	verbProgress  = "progress"
)

// report is a call of the worker, and its answer.
type report struct {
	verb    string
	done    asyncflow.Outcome // of complete
	error   string            // of fail and snooze
	problem string            // why the report was refused
	status  int               // of the answer; 0: undecided, the report is valid
	task    asyncflow.Status
}

// read reads the body of a report. Its error tells the worker what is wrong with it.
func (one *report) read(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReport))
	if err != nil {
		return err
	}
	var into any
	switch one.verb {
	case verbComplete:
		into = &api.Completion{}
	case verbFail:
		into = &api.Failure{}
	case verbSnooze:
		into = &api.Snooze{}
	case verbProgress:
		into = &api.ProgressReport{}
	case verbHeartbeat:
		into = &api.Heartbeat{}
	default:
		return fmt.Errorf("%q is none of complete, fail, snooze, heartbeat and progress", one.verb)
	}
	if len(body) == 0 && (one.verb == verbComplete || one.verb == verbHeartbeat) {
		return nil
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return errors.New("its Content-Type must be application/json")
	}
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(into); err != nil {
		return fmt.Errorf("its body can't be read: %w", err)
	}
	switch doc := into.(type) {
	case *api.Completion:
		return one.complete(doc)
	case *api.Failure:
		if one.error = doc.Error; one.error == "" {
			return errors.New("error is required")
		}
	case *api.Snooze:
		one.error = doc.Error
		return asyncflow.CheckSnooze(doc.RetryAfter)
	}
	return nil
}

// complete reads the body of a report that the delivery is done.
func (one *report) complete(doc *api.Completion) error {
	o := &one.done
	*o = asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: doc.Output, Next: doc.NextStage,
		Finish: doc.Finish, Spawn: doc.Spawn}
	if string(o.Output) == "null" { // as many libraries write an output that is absent
		o.Output = nil
	}
	if len(o.Output) > 0 {
		err := asyncflow.CheckDocument("output", o.Output, asyncflow.DefaultMaxContext)
		if err != nil {
			return err
		}
	}
	if err := choiceOf(*o).check(); err != nil {
		return err
	}
	err := asyncflow.CheckSpawned(o.Spawn, time.Now(), asyncflow.DefaultMaxContext)
	if err != nil {
		return err
	}
	if err := o.Joins(doc.Join.Join); err != nil {
		return err
	}
	return checkSpawn(*o)
}
