package asyncflow

import (
	"encoding/json"
	"time"
)

// Overlap is what happens at a tick while the task of the previous tick is not final.
type Overlap string

const (
	OverlapQueue   Overlap = "queue"   // its task is submitted anyway
	OverlapSkip    Overlap = "skip"    // there is no task for it
	OverlapReplace Overlap = "replace" // the previous task is cancelled first
)

// CatchUp is what happens with ticks that were missed because no node ran.
type CatchUp string

const (
	CatchUpLast CatchUp = "last" // the latest one gets its task
	CatchUpNone CatchUp = "none" // none does
	CatchUpAll  CatchUp = "all"  // all do, up to the latest CatchUpLimit
)

// Bounds and defaults of a schedule.
const (
	MinEvery = time.Second
	MaxEvery = 365 * 24 * time.Hour

	MaxCron     = 255 // bytes of a cron expression
	MaxTimeZone = 64  // bytes of the name of a time zone

	DefaultCatchUpLimit = 100
	MaxCatchUpLimit     = 1000

	DefaultTimeZone = "UTC"
)

// Schedule submits a task at each of its ticks: the times that Cron or Every gives, from
// StartsAt until before EndsAt. Each change makes a new Version.
type Schedule struct {
	Name    string `json:"-"`
	Version int    `json:"-"`

	// Type, Context, Priority and Retry are of its tasks.
	Type     string          `json:"type"`
	Context  json.RawMessage `json:"-"` // passed on byte by byte, so it is stored apart
	Priority Priority        `json:"priority,omitempty"`
	Retry    *RetryPolicy    `json:"retry,omitempty"`
	// DependsOn are the tasks that each of its tasks waits for; ContextFrom is that of its tasks.
	DependsOn   []Dependency `json:"depends_on,omitempty"`
	ContextFrom string       `json:"context_from,omitempty"`
	// OnFinal says where the ends of its tasks are told; nil: as their type says.
	OnFinal *OnFinal `json:"on_final,omitempty"`
	// Claim says which claimers may get its tasks; nil: all.
	Claim *ClaimRules `json:"claim,omitempty"`
	// StartBy and EndBy are the lifetime of its tasks; durations count from their tick.
	StartBy Deadline `json:"start_by,omitzero"`
	EndBy   Deadline `json:"end_by,omitzero"`
	Labels           // of its tasks

	// Cron is an expression of five fields, or one such as @daily, for local time in TimeZone (an
	// IANA name). Either Cron or Every is set.
	Cron     string `json:"cron,omitempty"`
	TimeZone string `json:"time_zone,omitempty"`
	// Every is the time between ticks, counted from StartsAt, or else from the creation of the
	// schedule.
	Every Duration `json:"every,omitzero"`

	Overlap      Overlap `json:"overlap"`
	CatchUp      CatchUp `json:"catch_up"`
	CatchUpLimit int     `json:"catch_up_limit"` // for CatchUpAll

	StartsAt time.Time `json:"starts_at,omitzero"`
	EndsAt   time.Time `json:"ends_at,omitzero"`
}

// WithDefaults returns s with its defaults filled in.
func (s Schedule) WithDefaults() Schedule {
	if s.TimeZone == "" && s.Cron != "" {
		s.TimeZone = DefaultTimeZone
	}
	if s.Overlap == "" {
		s.Overlap = OverlapQueue
	}
	if s.CatchUp == "" {
		s.CatchUp = CatchUpLast
	}
	if s.CatchUpLimit == 0 {
		s.CatchUpLimit = DefaultCatchUpLimit
	}
	s.StartsAt, s.EndsAt = s.StartsAt.UTC(), s.EndsAt.UTC() // equal times give equal documents
	return s
}

// Validate checks a schedule with defaults filled in, except for the contents of Cron and
// TimeZone: see package internal/timetable. maxContext is the limit for the context in bytes.
func (s Schedule) Validate(maxContext int) error {
	var out problems
	if err := CheckName(s.Name); err != nil {
		out.add("name", "%v", err)
	}
	if err := CheckName(s.Type); err != nil {
		out.add("type", "%v", err)
	}
	checkDocument(&out, "context", s.Context, maxContext)
	s.Priority.check("priority", &out)
	if s.Retry != nil {
		s.Retry.check("retry", &out)
	}
	checkDependencies(s.DependsOn, s.ContextFrom, &out)
	s.Claim.check(&out)
	s.Labels.check(&out)
	s.StartBy.check("start_by", &out)
	s.EndBy.check("end_by", &out)
	s.checkTimes(&out)
	s.checkPolicies(&out)
	return out.err()
}

func (s Schedule) checkTimes(out *problems) {
	switch {
	case s.Cron == "" && s.Every.IsZero():
		out.add("cron", "is required, or every")
	case s.Cron != "" && !s.Every.IsZero():
		out.add("every", "and cron exclude each other")
	case s.Cron == "" && s.TimeZone != "":
		out.add("time_zone",
			"goes with cron only: every is a time from tick to tick, whatever clocks show")
	}
	if !s.Every.IsZero() {
		checkDuration(out, "every", s.Every, MinEvery, MaxEvery)
		if s.Every.Std()%time.Second != 0 {
			out.add("every", "is %s; it must be whole seconds", s.Every)
		}
	}
	if len(s.Cron) > MaxCron {
		out.add("cron", "is %d bytes long; the limit is %d", len(s.Cron), MaxCron)
	}
	if len(s.TimeZone) > MaxTimeZone {
		out.add("time_zone", "is %d bytes long; the limit is %d", len(s.TimeZone), MaxTimeZone)
	}
	if y := s.StartsAt.UTC().Year(); !s.StartsAt.IsZero() && (y < 1970 || y > 2999) {
		out.add("starts_at", "is in the year %d; it must be in 1970 to 2999", y)
	}
	if !s.EndsAt.IsZero() && !s.EndsAt.After(s.StartsAt) {
		out.add("ends_at", "is not after starts_at")
	}
}

func (s Schedule) checkPolicies(out *problems) {
	switch s.Overlap {
	case OverlapQueue, OverlapSkip, OverlapReplace:
	default:
		out.add("overlap", "is %q; it must be skip, queue or replace", s.Overlap)
	}
	switch s.CatchUp {
	case CatchUpLast, CatchUpNone, CatchUpAll:
	default:
		out.add("catch_up", "is %q; it must be none, last or all", s.CatchUp)
	}
	if s.CatchUpLimit < 1 || s.CatchUpLimit > MaxCatchUpLimit {
		out.add("catch_up_limit", "is %d; it must be 1 to %d", s.CatchUpLimit, MaxCatchUpLimit)
	}
}

// Task returns the task that the schedule submits, without a key.
func (s Schedule) Task() NewTask {
	return NewTask{Type: s.Type, Context: s.Context, DependsOn: s.DependsOn,
		StartBy: s.StartBy, EndBy: s.EndBy,
		Options: Options{Priority: s.Priority, Retry: s.Retry, ContextFrom: s.ContextFrom,
			OnFinal: s.OnFinal, Claim: s.Claim,
			Labels: s.Labels}}
}

// TickTask returns the task of a tick. Its idempotency key names the tick, so repeated submits
// give one task.
func (s Schedule) TickTask(tick time.Time) NewTask {
	t := s.Task()
	t.Options.Key = "schedule/" + s.Name + "/" + tick.UTC().Format(time.RFC3339)
	t.KeyWindow = KeyFor(MaxKeyWindow)
	t.StartBy, t.EndBy = s.StartBy.From(tick), s.EndBy.From(tick)
	return t
}

// SameTimes reports whether the ticks of two schedules are the same.
func (s Schedule) SameTimes(o Schedule) bool {
	return s.Cron == o.Cron && s.TimeZone == o.TimeZone && s.Every.Std() == o.Every.Std() &&
		s.StartsAt.Equal(o.StartsAt) && s.EndsAt.Equal(o.EndsAt)
}
