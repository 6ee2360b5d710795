package asyncflow

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Bounds and defaults of a task type.
const (
	MaxStages            = 50
	MaxStageMappings     = 500
	MaxScheduleLimit     = 1000
	DefaultScheduleLimit = 200

	MinTimeout     = 100 * time.Millisecond
	MaxTimeout     = time.Hour
	DefaultTimeout = 30 * time.Second

	MaxProcessingTime     = 30 * 24 * time.Hour
	DefaultProcessingTime = time.Hour

	// How long a stage is snoozed at once, and in all.
	MinSnoozeAfter   = time.Second
	MaxSnoozeAfter   = 30 * 24 * time.Hour
	MinMaxSnooze     = time.Second
	MaxMaxSnooze     = 365 * 24 * time.Hour
	DefaultMaxSnooze = 24 * time.Hour

	MaxScheduleInterval = 24 * time.Hour

	MaxRamp = 24 * time.Hour // the longest ramp after a resume

	MinRollRows     = 1000
	MaxRollRows     = 1_000_000_000
	DefaultRollRows = 5_000_000

	MinRollAge     = time.Minute
	MaxRollAge     = 10 * 365 * 24 * time.Hour
	DefaultRollAge = 30 * 24 * time.Hour

	MinRetention     = time.Minute
	MaxRetention     = 10 * 365 * 24 * time.Hour
	DefaultRetention = 180 * 24 * time.Hour
)

// TaskType is a named pipeline of stages with its settings. Each change makes a new Version.
type TaskType struct {
	Name    string `json:"-"`
	Version int    `json:"-"`

	Stages []Stage `json:"stages"`
	// Retry is the policy of stages without one.
	Retry RetryPolicy `json:"retry,omitzero"`
	// ScheduleLimit is the limit of tasks in one lease call.
	ScheduleLimit int `json:"schedule_limit"`
	// ScheduleInterval is the minimum time between two lease calls on one node; zero: lease
	// whenever tasks are due.
	ScheduleInterval Duration `json:"schedule_interval"`

	// Limits of the type, on all nodes together.
	Limits
	// MaxDeliverBytes bounds what the deliveries of stages with Deliver carry besides the context,
	// in bytes; 0: no stage sets it.
	MaxDeliverBytes int `json:"max_deliver_bytes,omitempty"`
	// Flow holds the rules for flow keys; nil: flow keys do nothing.
	Flow *Flow `json:"flow,omitempty"`

	// A new roll opens when about RollRows tasks are in the open one, or it is open for RollAge and
	// isn't empty. Types in which RollRows, RollAge and Retention are the defaults share their
	// tables; any other gets tables of its own.
	RollRows int      `json:"roll_rows"`
	RollAge  Duration `json:"roll_age"`
	// Retention is the minimum time for which finished tasks are kept: a roll is dropped whole when
	// nothing happened in it for that long.
	Retention Duration `json:"retention"`
	// ContextRetention is how long after the end of a task its contents are erased; zero: they are
	// kept as long as the task.
	ContextRetention Duration `json:"context_retention,omitzero"`
	// Searchable are the fields of tasks with an index, so that filters by them don't search all
	// tasks: SearchUser and the like. They count for tasks submitted from the next roll on.
	Searchable []string `json:"searchable,omitempty"`

	// StartBy and EndBy are the lifetime of its tasks, unless they come with one of their own;
	// zero: they may take any time.
	StartBy Deadline `json:"start_by,omitzero"`
	EndBy   Deadline `json:"end_by,omitzero"`

	// MaxSteps is the most stages that a task visits, from its submit or its last redrive on, if
	// any stage sets a Next.
	MaxSteps int `json:"max_steps,omitempty"`

	// OnFinal says where the ends of its tasks are told, unless they say so themselves; nil:
	// nowhere.
	OnFinal *OnFinal `json:"on_final,omitempty"`
	// Notifies is the origin to which the tasks of the type tell ends: the type is a target of
	// OnFinal. "": it is none.
	Notifies string `json:"notifies,omitempty"`

	// StageMapping maps removed stages to the ones with which their remaining tasks continue.
	StageMapping map[string]string `json:"-"`
}

// Stage is one step of a task type.
type Stage struct {
	Name string `json:"name"`
	// Timeout bounds one delivery: connect, send, and the whole answer.
	Timeout Duration `json:"timeout,omitzero"`
	// MaxProcessingTime bounds the work after a 202 answer, until the completion.
	MaxProcessingTime Duration    `json:"max_processing_time,omitzero"`
	Retry             RetryPolicy `json:"retry,omitzero"`
	// MaxSnooze bounds how long workers may put a task off in the stage, from its first delivery.
	MaxSnooze Duration `json:"max_snooze,omitzero"`
	// StartBy is how long after it is due in the stage a task must begin there; zero: it may begin
	// at any time.
	StartBy Duration `json:"start_by,omitzero"`
	// Priority is the head start of tasks that enter this stage, in seconds. A task's own priority
	// replaces it.
	Priority int `json:"priority,omitzero"`
	// Deliver adds what came before to deliveries; nil: they carry the context only.
	Deliver *Deliver `json:"deliver,omitempty"`
	// Next names the stages with which a task may go on after this one, and NextFinish if it may
	// end here; empty: the following stage or, after the last one, the end.
	Next []string `json:"next,omitempty"`
	// OnFailure says where a task goes on when its last attempt in the stage fails; nil: the task
	// fails.
	OnFailure *StageFailure `json:"on_failure,omitempty"`
	// Spawn names the types of the tasks that attempts may start; empty: they start none.
	Spawn []string `json:"spawn,omitempty"`
	// FanOut makes children of a task, which pass through the stage; nil: it makes none.
	FanOut *FanOut `json:"fan_out,omitempty"`
	// Quorum lets several workers do the stage until enough of them agree; nil: one does it.
	Quorum *Quorum `json:"quorum,omitempty"`
	// Mode says how workers get the tasks of the stage; "": ModePush.
	Mode Mode `json:"mode,omitempty"`
	// Wait says what tasks of a stage of ModeWait wait for; nil: the stage is of another mode.
	Wait *Wait `json:"wait,omitempty"`
	// Window bounds the tasks that one claimer is shown; nil: it may see all.
	Window *Window `json:"window,omitempty"`
	// Identity says how claimers prove who they are; "": see NeedsIdentity.
	Identity Identity `json:"identity,omitempty"`
	// Listened reports whether the mode is claim only because of an endpoint for listening: see
	// WithListeners. It is no setting.
	Listened bool `json:"-"`
}

// WithDefaults returns t with its defaults filled in.
func (t TaskType) WithDefaults() TaskType {
	if t.ScheduleLimit == 0 {
		t.ScheduleLimit = DefaultScheduleLimit
	}
	t.RollRows = cmp.Or(t.RollRows, DefaultRollRows)
	t.MaxSteps = cmp.Or(t.MaxSteps, DefaultMaxSteps)
	if t.RollAge.IsZero() {
		t.RollAge = NewDuration(DefaultRollAge)
	}
	if t.Retention.IsZero() {
		t.Retention = NewDuration(DefaultRetention)
	}
	t.Stages = slices.Clone(t.Stages)
	for i := range t.Stages {
		s := &t.Stages[i]
		if s.Mode == ModeWait {
			continue
		}
		if s.Timeout.IsZero() {
			s.Timeout = NewDuration(DefaultTimeout)
		}
		if s.MaxProcessingTime.IsZero() {
			s.MaxProcessingTime = NewDuration(DefaultProcessingTime)
		}
		if s.MaxSnooze.IsZero() {
			s.MaxSnooze = NewDuration(DefaultMaxSnooze)
		}
		s.Retry = DefaultRetry.Override(t.Retry).Override(s.Retry)
		if s.Deliver != nil && t.MaxDeliverBytes == 0 {
			t.MaxDeliverBytes = MaxDeliverBytes
		}
	}
	return t
}

// Validate checks a task type with defaults filled in. Its error names
// each offending field and its limit.
func (t TaskType) Validate() error {
	var out problems
	if err := CheckName(t.Name); err != nil {
		out.add("name", "%v", err)
	}
	if n := len(t.Stages); n < 1 || n > MaxStages {
		out.add("stages", "has %d entries; it must have 1 to %d", n, MaxStages)
	}
	if t.ScheduleLimit < 1 || t.ScheduleLimit > MaxScheduleLimit {
		out.add("schedule_limit", "is %d; it must be 1 to %d", t.ScheduleLimit, MaxScheduleLimit)
	}
	checkDuration(&out, "schedule_interval", t.ScheduleInterval, 0, MaxScheduleInterval)
	if t.RollRows < MinRollRows || t.RollRows > MaxRollRows {
		out.add("roll_rows", "is %d; it must be %d to %d", t.RollRows, MinRollRows, MaxRollRows)
	}
	checkDuration(&out, "roll_age", t.RollAge, MinRollAge, MaxRollAge)
	t.checkRetention(&out)
	t.Retry.check("retry", &out)
	t.checkMapping(&out)
	t.checkLimits("", &out)
	t.Flow.check(&out)
	t.checkDeliverBytes(&out)
	t.checkClaims(&out)
	t.checkFirstWait(&out)
	t.checkSteps(&out)
	t.checkLinks(&out)
	t.checkTarget(&out)
	t.checkSearchable(&out)
	t.StartBy.check("start_by", &out)
	t.EndBy.check("end_by", &out)
	seen := map[string]bool{}
	for i, s := range t.Stages {
		field := fmt.Sprintf("stages[%d]", i)
		s.Retry = s.Retry.without(t.Retry) // an error in the type's policy is reported once
		s.check(field, &out)
		if s.Mode != ModeWait {
			s.Deliver.check(field+".deliver", t, &out)
		}
		if seen[s.Name] {
			out.add(field+".name", "is %q, which an earlier stage has", s.Name)
		}
		seen[s.Name] = true
	}
	return out.err()
}

func (s Stage) check(field string, out *problems) {
	if err := CheckName(s.Name); err != nil {
		out.add(field+".name", "%v", err)
	}
	s.checkMode(field, out)
	if !s.StartBy.IsZero() {
		checkDuration(out, field+".start_by", s.StartBy, time.Millisecond, MaxLifetime)
	}
	if s.Mode == ModeWait {
		return
	}
	checkDuration(out, field+".timeout", s.Timeout, MinTimeout, MaxTimeout)
	checkDuration(out, field+".max_processing_time", s.MaxProcessingTime, MinTimeout,
		MaxProcessingTime)
	checkDuration(out, field+".max_snooze", s.MaxSnooze, MinMaxSnooze, MaxMaxSnooze)
	s.Retry.check(field+".retry", out)
	Priority{s.Priority}.check(field+".priority", out)
	s.FanOut.check(field+".fan_out", out)
	if s.FanOut != nil && s.FanOut.Joined != nil {
		out.add(field+".fan_out.joined", "can't be given")
	}
	s.Quorum.check(field+".quorum", s, out)
	s.checkSpawn(field+".spawn", out)
}

func checkDuration(out *problems, field string, d Duration, least, most time.Duration) {
	if d.Std() < least || d.Std() > most {
		out.add(field, "is %s; it must be %s to %s", d.Text(), normalText(least), normalText(most))
	}
}

// CheckSnooze checks how long a worker wants to put a task off.
func CheckSnooze(after Duration) error {
	var out problems
	checkDuration(&out, "retry_after", after, MinSnoozeAfter, MaxSnoozeAfter)
	return out.err()
}

// StageIndex returns the index of a stage by name, or -1.
func (t TaskType) StageIndex(name string) int {
	return slices.IndexFunc(t.Stages, func(s Stage) bool { return s.Name == name })
}

// ProcessingTime returns how long the work of a stage may take after a 202 answer or a
// heartbeat.
func (t TaskType) ProcessingTime(stage string) time.Duration {
	if i := t.StageIndex(stage); i >= 0 {
		return t.Stages[i].MaxProcessingTime.Std()
	}
	return 0
}

// StageNames returns the names of the stages in order.
func (t TaskType) StageNames() []string {
	names := make([]string, len(t.Stages))
	for i, s := range t.Stages {
		names[i] = s.Name
	}
	return names
}
