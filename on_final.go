package asyncflow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The end of a task is told to a URL by a notification: a task of a built-in type that the end
// itself leaves to do. So it is signed, retried and listed like any task. All notifications to one
// origin with one secret are of one type, a target, with one stage and one endpoint: a receiver
// that is down holds up no other one, and its circuit breaker is its own.

// OnFinal says where the end of a task is told.
type OnFinal struct {
	// URL gets the event of each end.
	URL string `json:"url"`
	// On are the ends that are told; empty: all.
	On []Status `json:"on,omitempty"`
	// Target is the type of the notifications; "": it isn't known yet, see TargetName.
	Target string `json:"target,omitempty"`
	// Secret is given by a caller, and is never stored: its target holds it, sealed.
	Secret string `json:"-"`
}

// Bounds of OnFinal.
const (
	// MaxOnFinalURL bounds its URL, in bytes. It is stored with each task.
	MaxOnFinalURL = 1024
	// maxOnFinalText bounds its URL as it is stored, where a few characters take six bytes. Options
	// of 16 KiB would be taken for those of a child: see records.IsChildSQL.
	maxOnFinalText = 3000
	// MaxTargets bounds the targets of a tenant.
	MaxTargets = 100
)

// What the type of a target is like.
const (
	TargetPrefix = "asyncflow-final-"
	TargetStage  = "send"
	// targetBytes is how many bytes of a hash are in its name.
	targetBytes = 8
)

// targetTimeout bounds one notification.
const targetTimeout = 10 * time.Second

// NewTarget returns the task type of a target as it is created.
func NewTarget(name, origin string) TaskType {
	return TaskType{Name: name, Notifies: origin,
		Stages: []Stage{{Name: TargetStage, Timeout: NewDuration(targetTimeout)}}}.WithDefaults()
}

// TargetName returns the name of the target for a URL and a secret; "": the target's own. Without a
// secret, submits by SQL find the same name.
func TargetName(raw, secret string) string {
	text := OriginOf(raw)
	if secret != "" {
		text += " " + secret
	}
	sum := sha256.Sum256([]byte(text))
	return TargetPrefix + hex.EncodeToString(sum[:targetBytes])
}

// TooManyTargets is the error of an on_final that needs another target beyond MaxTargets.
func TooManyTargets() error {
	return &Error{Code: CodeQuota, Message: fmt.Sprintf("the tenant has %d targets of on_final, "+
		"which is the limit: delete a task type whose name begins with %s and whose receiver is "+
		"gone", MaxTargets, TargetPrefix),
		Fields: []FieldError{{Field: "on_final.url",
			Message: "would need another target: there is one for each origin and secret"}}}
}

// IsTarget reports whether a name is kept for targets.
func IsTarget(name string) bool { return strings.HasPrefix(name, TargetPrefix) }

// OriginOf returns the scheme, host and port of a valid URL, in one spelling.
func OriginOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	host := strings.ToLower(u.Host)
	if u.Port() == defaultPorts[u.Scheme] {
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	return u.Scheme + "://" + host
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

// Check explains what is wrong with the URL, by the operator's policy, and with the other fields. A
// target must be one for the URL's origin.
func (f *OnFinal) Check(egress Egress) error {
	if f == nil {
		return nil
	}
	var out problems
	const field = "on_final"
	text, _ := json.Marshal(f.URL)
	switch why := checkURL(f.URL, egress); {
	case why != "":
		out.add(field+".url", "%s", why)
	case len(f.URL) > MaxOnFinalURL:
		out.add(field+".url", "is %d bytes long; the limit is %d", len(f.URL), MaxOnFinalURL)
	case len(text) > maxOnFinalText:
		out.add(field+".url", "takes %d bytes in JSON, where &, < and > take six; the limit is %d",
			len(text), maxOnFinalText)
	}
	for i, s := range f.On {
		at := fmt.Sprintf("%s.on[%d]", field, i)
		if !s.Final() {
			out.add(at, "is %.40q; it must be succeeded, failed or cancelled", string(s))
		} else if slices.Contains(f.On[:i], s) {
			out.add(at, "is %s again", s)
		}
	}
	if f.Target != "" && f.Secret != "" {
		out.add(field+".secret", "and target exclude each other: the target has a secret")
	}
	if f.Target != "" && (!IsTarget(f.Target) || CheckName(f.Target) != nil) {
		out.add(field+".target", "is %.40q; it must be one that was read back, such as %s%s",
			f.Target, TargetPrefix, strings.Repeat("0", 2*targetBytes))
	}
	return out.err()
}

// TargetOf returns the name of the target.
func (f *OnFinal) TargetOf() string {
	if f.Target != "" {
		return f.Target
	}
	return TargetName(f.URL, "")
}

// Tells returns where the end of a task with options is told; nil: nowhere. The task's own choice
// counts before its type's. A part of another task's work has no end of its own to tell, nor does a
// notification.
func (t *TaskType) Tells(o *Options, final Status) *OnFinal {
	f := t.TellsAny(o)
	if f == nil || final == "" || len(f.On) > 0 && !slices.Contains(f.On, final) {
		return nil
	}
	return f
}

// TellsAny returns where ends of a task with options are told, if any are; nil: nowhere.
func (t *TaskType) TellsAny(o *Options) *OnFinal {
	if o.Child != nil || o.Notification != nil || t.Notifies != "" {
		return nil
	}
	if o.OnFinal != nil {
		return o.OnFinal
	}
	return t.OnFinal
}

// checkTarget checks the type of a target: its owner may change how often it is tried, and how long
// that takes.
func (t TaskType) checkTarget(out *problems) {
	if t.Notifies == "" {
		return
	}
	one := len(t.Stages) == 1 && t.Stages[0].Name == TargetStage
	if !one || t.Stages[0].Mode != "" && t.Stages[0].Mode != ModePush ||
		t.Stages[0].FanOut != nil || t.Stages[0].Quorum != nil || len(t.Stages[0].Next) > 0 {
		out.add("stages",
			"must be the one stage %q, which pushes: the type is a target of on_final", TargetStage)
	}
	if t.OnFinal != nil {
		out.add("on_final", "can't be given: the type is itself a target of on_final")
	}
}

// Notification says what a notification tells, and where.
type Notification struct {
	// Event is the id of the event: the same in all deliveries of the end of a task.
	Event string `json:"event"`
	Task  string `json:"task"` // that ended
	URL   string `json:"url"`
}

// EventID returns the id of the event of an end. A task that is redriven ends with another seq.
func EventID(task TaskID, seq int) string { return fmt.Sprintf("final-%s.%d", task, seq) }

// FinalEvent is the event of an end, as its receiver gets it.
type FinalEvent struct {
	ID        string    `json:"id"`   // see EventID
	Type      string    `json:"type"` // task.succeeded, task.failed or task.cancelled
	Timestamp time.Time `json:"timestamp"`
	Data      FinalTask `json:"data"`
}

// FinalTask is a task at its end.
type FinalTask struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Key        string          `json:"key,omitempty"`
	FlowKey    string          `json:"flow_key,omitempty"`
	Labels                     // of the task
	Status     Status          `json:"status"`
	Stage      string          `json:"stage,omitempty"` // in which it ended
	Attempts   int             `json:"attempts"`
	CreatedAt  time.Time       `json:"created_at"`
	FinishedAt time.Time       `json:"finished_at"`
	Error      string          `json:"error,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"` // of one that succeeded
}

// NewFinalEvent returns the event of the end of a task at a seq.
func NewFinalEvent(task TaskID, seq int, data FinalTask) FinalEvent {
	data.ID = task.String()
	data.Type = task.Type
	data.CreatedAt = data.CreatedAt.UTC()
	data.FinishedAt = data.FinishedAt.UTC()
	return FinalEvent{ID: EventID(task, seq), Type: "task." + string(data.Status),
		Timestamp: data.FinishedAt, Data: data}
}

// Document returns the event as JSON, with the bytes of the result as they are.
func (e FinalEvent) Document() json.RawMessage {
	result := e.Data.Result
	e.Data.Result = nil
	doc, err := json.Marshal(e)
	if err != nil {
		panic(err) // texts, numbers and times
	}
	if len(result) == 0 {
		return doc
	}
	doc = append(doc[:len(doc)-len(`}}`)], `,"result":`...)
	return append(append(doc, result...), `}}`...)
}
