package asyncflow

import (
	"encoding/json"
	"strings"
	"time"
)

// AlertReading is a measurement of a subject: a task type, a stage ("type/stage"), an endpoint
// ("type/stage/id"), a node, a job, or "tenant/type". Its unit is seconds, a share of 1, or a
// number of tasks.
type AlertReading struct {
	Alert        AlertKind
	Subject      string
	Value, Limit float64
	// If the value is that of a task, WaitsFor is the reason why that task hasn't started.
	WaitsFor WaitReason
	// Open says that there is too little to measure while an endpoint gets nothing. Such a reading
	// neither begins nor ends an episode.
	Open bool
	// Certain says that it is over its limit, whatever the value.
	Certain bool
	// Detail is what else the notice says; nil: nothing.
	Detail *AlertDetail
}

// AlertDetail is what an alert says beside its value, as it was when the episode began.
type AlertDetail struct {
	Within float64 `json:"within,omitzero"` // of the rule, in seconds, if there is a period
	P50    float64 `json:"p50,omitzero"`    // AlertLongWait: half of the tasks waited at most this
	// AlertBlockedKey: the keys that stand still for longest, at most MaxAlertKeys, and how many
	// there are.
	Keys        []BlockedKey `json:"keys,omitempty"`
	BlockedKeys int          `json:"blocked_keys,omitzero"`
	// Task is one of the tasks that the alert is about: see AlertTask. nil: none was found.
	Task *AlertTask `json:"task,omitempty"`
}

// AlertTask stands for the tasks that an alert is about: the one that is due for longest, or for
// AlertFailedForGood one that failed.
type AlertTask struct {
	ID  string `json:"id"`
	Key string `json:"key,omitempty"` // its idempotency key
	Labels
}

// MaxAlertKeys is the most flow keys that an alert names.
const MaxAlertKeys = 5

// MaxNotice is the most bytes of a notice. It carries at most MaxAlertKeys flow keys, idempotency
// keys and Labels, and a character of a key takes up to six bytes in JSON.
const MaxNotice = 32 << 10

// BlockedKey is a flow key that stands still.
type BlockedKey struct {
	Key      string     `json:"key"`
	Task     string     `json:"task"`   // that others wait for
	Status   Status     `json:"status"` // of that task
	WaitsFor WaitReason `json:"waits_for,omitzero"`
	Since    time.Time  `json:"since"`
	TaskKey  string     `json:"task_key,omitempty"` // the task's idempotency key
	Labels              // of the task
}

func (r AlertReading) overLimit() bool { return r.Certain || r.Value >= r.Limit }

// Episode is the period from the moment at which a reading reached its limit until it is below the
// limit for EpisodeCalm.
type Episode struct {
	ID string // a UUID
	AlertReading
	Since time.Time
	Below time.Time // since when the reading is below its limit; zero: it is not below

	Resolved      time.Time // zero: it is going on
	ResolvedValue float64

	// The ids of the tasks that reported its beginning and its end, once submitted.
	FiringTask, ResolvedTask string
}

// EpisodeCalm is how long a reading must be below its limit for the episode to be over.
const EpisodeCalm = time.Minute

// FollowEpisodes compares current readings with the open episodes. It returns the readings that
// begin new episodes, and the open episodes that changed. A subject without a reading counts as
// below its limit, unless it is Open.
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
		if next := e.follow(r.Value, measured && (r.Open || r.overLimit()), at); next != e {
			changed = append(changed, next)
		}
	}
	for _, r := range readings {
		if !r.Open && r.overLimit() && !going[subject{r.Alert, r.Subject}] {
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

// AlertState is the state of an episode in a notice.
type AlertState string

const (
	AlertFiring   AlertState = "firing"   // it is begun
	AlertResolved AlertState = "resolved" // it is over
)

// notice is the context of the task that reports an episode.
type notice struct {
	Alert      AlertKind  `json:"alert"`
	State      AlertState `json:"state"`
	Tenant     string     `json:"tenant,omitempty"`
	Type       string     `json:"type,omitempty"`
	Stage      string     `json:"stage,omitempty"`
	Endpoint   string     `json:"endpoint,omitempty"`
	Node       string     `json:"node,omitempty"`
	Job        string     `json:"job,omitempty"`
	Schedule   string     `json:"schedule,omitempty"`
	WaitsFor   WaitReason `json:"waits_for,omitempty"`
	Since      time.Time  `json:"since"`
	ResolvedAt time.Time  `json:"resolved_at,omitzero"`
	Value      float64    `json:"value"`
	Limit      float64    `json:"limit"`
	Episode    string     `json:"episode"`
	*AlertDetail
}

// Notice returns the context of the task that reports an episode: the same bytes each time.
func (e Episode) Notice(tenant string, state AlertState) json.RawMessage {
	n := notice{Alert: e.Alert, State: state, Since: e.Since.UTC(), Value: e.Value, Limit: e.Limit,
		WaitsFor: e.WaitsFor, Episode: e.ID}
	switch e.Alert {
	case AlertNodeGone:
		n.Node = e.Subject
	case AlertJobOverdue:
		n.Job = e.Subject
	case AlertScheduleFailing:
		n.Tenant, n.Schedule = tenant, e.Subject
	case AlertRollOverdue:
		n.Tenant, n.Type, _ = strings.Cut(e.Subject, "/")
	case AlertEndpointMissing, AlertNoClaimers:
		n.Tenant = tenant
		n.Type, n.Stage, _ = strings.Cut(e.Subject, "/")
	case AlertEndpointFailing:
		n.Tenant = tenant
		n.Type, n.Endpoint, _ = strings.Cut(e.Subject, "/")
		n.Stage, n.Endpoint, _ = strings.Cut(n.Endpoint, "/")
	default:
		n.Tenant = tenant
		if e.Subject != AllTypes {
			n.Type = e.Subject
		}
	}
	if state == AlertFiring {
		n.AlertDetail = e.Detail
	}
	if state == AlertResolved {
		n.ResolvedAt, n.Value = e.Resolved.UTC(), e.ResolvedValue
	}
	doc, err := json.Marshal(n)
	if err != nil {
		panic(err) // it holds numbers and texts only
	}
	return doc
}

// PendingNotices returns the notices that are still to send, in order.
func (e Episode) PendingNotices() []AlertState {
	var states []AlertState
	if e.FiringTask == "" {
		states = append(states, AlertFiring)
	}
	if e.ResolvedTask == "" && !e.Resolved.IsZero() {
		states = append(states, AlertResolved)
	}
	return states
}
