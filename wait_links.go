package asyncflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of links.
const (
	MaxDecisions    = 5       // of one wait
	MaxLinks        = 20      // in one delivery
	MaxSummaryBytes = 4 << 10 // of the summary that people are shown
	MaxDecidedBy    = 200     // characters of the name of who decides
)

// Links says that the deliveries of the stages before a wait carry links, by which people decide.
// The zero value stands for the decisions approve and reject, and is true in JSON.
type Links struct {
	// Decisions are what people may decide, by a link for each; empty: approve and reject.
	Decisions []string `json:"decisions,omitempty"`
	// Summary is a JSON pointer into the context, to what people are shown; "": /summary.
	Summary string `json:"summary,omitempty"`
}

// linkFields are the fields of Links, without its methods.
type linkFields Links

// MarshalJSON writes true for the zero value, else the fields that are set.
func (l Links) MarshalJSON() ([]byte, error) {
	if len(l.Decisions) == 0 && l.Summary == "" {
		return []byte("true"), nil
	}
	return json.Marshal(linkFields(l))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Links) UnmarshalJSON(b []byte) error {
	*l = Links{}
	if string(b) == "true" {
		return nil
	}
	var fields linkFields
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&fields); err != nil || len(fields.Decisions) == 0 && fields.Summary == "" {
		return errors.New("must be true, or an object with decisions, summary or both")
	}
	*l = Links(fields)
	return nil
}

// Names returns the decisions, in order.
func (l Links) Names() []string {
	if len(l.Decisions) == 0 {
		return []string{"approve", "reject"}
	}
	return l.Decisions
}

// SummaryOf returns what people are shown of a context: a text as it is, any other value as JSON.
// "": there is nothing at the pointer. It is valid UTF-8 of up to MaxSummaryBytes.
func (l Links) SummaryOf(context json.RawMessage) string {
	pointer := l.Summary
	if pointer == "" {
		pointer = "/summary"
	}
	part, err := PointTo(context, pointer)
	if err != nil {
		return ""
	}
	text := string(part)
	if firstByte(part) == '"' && json.Unmarshal(part, &text) != nil {
		return ""
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > MaxSummaryBytes {
		text = strings.ToValidUTF8(text[:MaxSummaryBytes], "") + "…"
	}
	return text
}

func (t TaskType) checkLinks(out *problems) {
	for i, s := range t.Stages {
		links := 0
		for _, w := range t.LinksAfter(s.Name) {
			links += len(w.Decisions)
		}
		if links > MaxLinks {
			out.add(fmt.Sprintf("stages[%d]", i), "has deliveries with %d links, by wait.links of "+
				"the stages that may come next; the limit is %d", links, MaxLinks)
		}
	}
	for i, s := range t.Stages {
		if s.Mode != ModeWait || s.Wait == nil || s.Wait.Links == nil {
			continue
		}
		field := fmt.Sprintf("stages[%d].wait.links", i)
		s.Wait.Links.check(field, out)
		if !slices.ContainsFunc(t.Stages, func(before Stage) bool {
			return before.givesLinks() && slices.Contains(t.ways(t.StageIndex(before.Name)), i)
		}) {
			out.add(field, "would be given to nobody: no stage with deliveries comes right before "+
				"(children of fan_out and votes of a quorum get no links)")
		}
	}
}

func (l Links) check(field string, out *problems) {
	if n := len(l.Decisions); n > MaxDecisions {
		out.add(field+".decisions", "has %d entries; it must have 1 to %d", n, MaxDecisions)
		return
	}
	for i, name := range l.Decisions {
		entry := fmt.Sprintf("%s.decisions[%d]", field, i)
		if err := CheckName(name); err != nil {
			out.add(entry, "%v", err)
		} else if slices.Contains(l.Decisions[:i], name) {
			out.add(entry, "is %q, which an earlier entry is", name)
		}
	}
	checkPointer(field+".summary", l.Summary, out)
}

// givesLinks reports whether deliveries of a stage may carry links: each is one of the task itself.
func (s Stage) givesLinks() bool { return s.Mode != ModeWait && s.Spreads() == nil }

// WaitLinks are the links to the decisions of one wait that a delivery carries.
type WaitLinks struct {
	Stage     string // that waits
	Decisions []string
	Timeout   time.Duration // of the wait
}

// LinksAfter returns the links that the deliveries of a stage carry; nil: none.
func (t TaskType) LinksAfter(stage string) (all []WaitLinks) {
	if !slices.ContainsFunc(t.Stages, Stage.hasLinks) {
		return nil
	}
	i := t.StageIndex(stage)
	if i < 0 || !t.Stages[i].givesLinks() {
		return nil
	}
	for to, s := range t.Stages {
		if s.hasLinks() && slices.Contains(t.ways(i), to) {
			all = append(all, WaitLinks{s.Name, s.Wait.Links.Names(), s.Wait.Timeout.Std()})
		}
	}
	return all
}

// HasLinksTo reports whether the deliveries of a stage carry links to the wait in another one.
func (t TaskType) HasLinksTo(stage, wait string) bool {
	i, to := t.StageIndex(stage), t.StageIndex(wait)
	return i >= 0 && to >= 0 && t.Stages[to].hasLinks() && t.Stages[i].givesLinks() &&
		slices.Contains(t.ways(i), to)
}

func (s Stage) hasLinks() bool { return s.Mode == ModeWait && s.Wait != nil && s.Wait.Links != nil }

// LinkDecision is what somebody decided by a link. As JSON it is the data of the signal.
type LinkDecision struct {
	Decision string    `json:"decision"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
}

// Validate checks who decided. The name is only what that person wrote.
func (d LinkDecision) Validate() error {
	var out problems
	switch n := utf8.RuneCountInString(d.By); {
	case strings.TrimSpace(d.By) == "":
		out.add("by", "is required")
	case n > MaxDecidedBy:
		out.add("by", "has %d characters; the limit is %d", n, MaxDecidedBy)
	case !utf8.ValidString(d.By) || strings.ContainsFunc(d.By, unicode.IsControl):
		out.add("by", "must be UTF-8 without control characters")
	}
	return out.err()
}

// linkKeys begin the idempotency keys of signals that links send. Callers can't choose such a key.
const linkKeys = "link/"

// LinkKey returns the idempotency key of the signal for a decision: one for each time that a task
// comes to a wait. round is the seq of the last row in its journal before its visit of the stage
// with the links, or that of a redrive to the wait.
func LinkKey(task TaskID, stage string, round int) string {
	return linkKeys + task.String() + "/" + stage + "/" + strconv.Itoa(round)
}
