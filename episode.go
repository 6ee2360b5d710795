package asyncflow

import (
	"encoding/json"
	"strings"
	"time"
)

// AlertReading is what was measured of a subject: a task type, a stage by "type/stage", an
// endpoint by "type/stage/id", a node, a job, or "tenant/type". Its unit is seconds, or a
// share of 1.
type AlertReading struct {
	Alert        AlertKind
	Subject      string
	Value, Limit float64
	// WaitsFor is why the task isn't under way that the value is of, if it is a task's.
	WaitsFor WaitReason
	// Open says that there is too little to measure while an endpoint gets nothing: that
	// begins no episode, and ends none.
	Open bool
}

func (r AlertReading) over() bool { return r.Value >= r.Limit }

// Episode is the time from when a reading got to its limit until it has been below for
// EpisodeCalm.
type Episode struct {
	ID string // a UUID
	AlertReading
	Since time.Time
	Below time.Time // since when it has been below its limit; zero: it is not

	Resolved      time.Time // zero: it is going on
	ResolvedValue float64

	// The ids of the tasks that told of its beginning and its end, once they did.
	FiringTask, ResolvedTask string
}

// EpisodeCalm is how long a reading must be below its limit for the episode to be over.
const EpisodeCalm = time.Minute

// FollowEpisodes holds the readings of a moment against the episodes that go on, and
// returns the readings that begin new ones, and those of the old ones that have changed.
// What isn't measured any more is below its limit, unless it is Open.
func FollowEpisodes(
	open []Episode, readings []AlertReading, at time.Time,
) (begun []AlertReading, changed []Episode) {
	type subject struct {
		AlertKind
		string
	}
	now := map[subject]AlertReading{}
	for _, r := range readings {
		now[subject{r.Alert, r.Subject}] = r
	}
	going := map[subject]bool{}
	for _, e := range open {
		key := subject{e.Alert, e.Subject}
		going[key] = true
		r, measured := now[key]
		if next := e.follow(r.Value, measured && (r.Open || r.over()), at); next != e {
			changed = append(changed, next)
		}
	}
	for _, r := range readings {
		if !r.Open && r.over() && !going[subject{r.Alert, r.Subject}] {
			begun = append(begun, r)
		}
	}
	return begun, changed
}

// follow returns the episode after a reading.
func (e Episode) follow(value float64, over bool, at time.Time) Episode {
	switch {
	case over:
		e.Below = time.Time{}
	case e.Below.IsZero():
		e.Below = at
	case at.Sub(e.Below) >= EpisodeCalm:
		e.Resolved, e.ResolvedValue = at, value
	}
	return e
}

// AlertState says what a notice tells of an episode.
type AlertState string

const (
	AlertFiring   AlertState = "firing"   // it has begun
	AlertResolved AlertState = "resolved" // it is over
)

// notice is the context of the task that tells of an episode.
type notice struct {
	Alert      AlertKind  `json:"alert"`
	State      AlertState `json:"state"`
	Tenant     string     `json:"tenant,omitempty"`
	Type       string     `json:"type,omitempty"`
	Stage      string     `json:"stage,omitempty"`
	Endpoint   string     `json:"endpoint,omitempty"`
	Node       string     `json:"node,omitempty"`
	Job        string     `json:"job,omitempty"`
	WaitsFor   WaitReason `json:"waits_for,omitempty"`
	Since      time.Time  `json:"since"`
	ResolvedAt time.Time  `json:"resolved_at,omitzero"`
	Value      float64    `json:"value"`
	Limit      float64    `json:"limit"`
	Episode    string     `json:"episode"`
}

// Notice returns what the task that tells of an episode says: the same bytes each time.
func (e Episode) Notice(tenant string, state AlertState) json.RawMessage {
	n := notice{Alert: e.Alert, State: state, Since: e.Since.UTC(), Value: e.Value, Limit: e.Limit,
		WaitsFor: e.WaitsFor, Episode: e.ID}
	switch e.Alert {
	case AlertNodeGone:
		n.Node = e.Subject
	case AlertJobOverdue:
		n.Job = e.Subject
	case AlertRollOverdue:
		n.Tenant, n.Type, _ = strings.Cut(e.Subject, "/")
	case AlertEndpointMissing:
		n.Tenant = tenant
		n.Type, n.Stage, _ = strings.Cut(e.Subject, "/")
	case AlertEndpointFailing:
		n.Tenant = tenant
		n.Type, n.Endpoint, _ = strings.Cut(e.Subject, "/")
		n.Stage, n.Endpoint, _ = strings.Cut(n.Endpoint, "/")
	default:
		n.Tenant, n.Type = tenant, e.Subject
	}
	if state == AlertResolved {
		n.ResolvedAt, n.Value = e.Resolved.UTC(), e.ResolvedValue
	}
	doc, err := json.Marshal(n)
	if err != nil {
		panic(err) // numbers and texts
	}
	return doc
}

// Untold returns the notices that are still to be sent, in order.
func (e Episode) Untold() []AlertState {
	var states []AlertState
	if e.FiringTask == "" {
		states = append(states, AlertFiring)
	}
	if e.ResolvedTask == "" && !e.Resolved.IsZero() {
		states = append(states, AlertResolved)
	}
	return states
}
