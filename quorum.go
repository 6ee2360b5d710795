package asyncflow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of a quorum.
const (
	MaxVotes   = 100
	MaxOutcome = 1 << 10 // bytes of an outcome that votes agree on
	MaxTrust   = 1000
)

// Quorum lets several workers do the same stage of a task, until enough of them agree. Each vote is
// a child of the task, with the task's context. No claimer votes twice on a task.
type Quorum struct {
	// Votes is how many votes one outcome needs.
	Votes int `json:"votes"`
	// MaxVotes is the number of votes after which the task fails if no outcome got enough of them.
	MaxVotes int `json:"max_votes"`
	// MaxErrors is how many votes may fail, be cancelled, or be without an outcome.
	MaxErrors int `json:"max_errors"`
	// AgreeOn is a JSON pointer (RFC 6901) into a vote's output, to its outcome; "": all of it.
	AgreeOn string `json:"agree_on,omitempty"`
	// Trust lets claimers that often agreed with others decide alone; nil: nobody does.
	Trust *Trust `json:"trust,omitempty"`
}

// Trust is adaptive replication, as in BOINC: a claimer that agreed with the last n decisions
// decides alone with a probability of 1 - 1/n, if n is After or more. So each is still checked now
// and then.
type Trust struct {
	After int `json:"after"`
}

// HasQuorum reports whether a stage asks for a quorum.
func (t TaskType) HasQuorum() bool {
	return slices.ContainsFunc(t.Stages, func(s Stage) bool { return s.Quorum != nil })
}

func (q *Quorum) check(field string, s Stage, out *problems) {
	if q == nil {
		return
	}
	if s.FanOut != nil {
		out.add(field, "and fan_out exclude each other")
	}
	if q.Votes < 1 || q.Votes > MaxVotes {
		out.add(field+".votes", "is %d; it must be 1 to %d", q.Votes, MaxVotes)
	}
	if q.MaxVotes < q.Votes || q.MaxVotes > MaxVotes {
		out.add(field+".max_votes", "is %d; it must be votes (%d) to %d", q.MaxVotes, q.Votes,
			MaxVotes)
	}
	if q.MaxErrors < 0 || q.MaxErrors > MaxVotes {
		out.add(field+".max_errors", "is %d; it must be 0 to %d", q.MaxErrors, MaxVotes)
	}
	checkPointer(field+".agree_on", q.AgreeOn, out)
	if q.Trust != nil && (q.Trust.After < 2 || q.Trust.After > MaxTrust) {
		out.add(field+".trust.after", "is %d; it must be 2 to %d", q.Trust.After, MaxTrust)
	}
	if q.Trust != nil && s.Mode != ModeClaim {
		out.add(field+".trust", "needs the mode claim")
	}
}

// most returns the most children that the votes of a task can be.
func (q *Quorum) most() int { return q.MaxVotes + q.MaxErrors }

// Outcome returns what a vote with an output is for, in a form in which equal values are equal byte
// by byte, see canonical. nil: there is no outcome in the output, or one longer than MaxOutcome, or
// one without that form.
func (q *Quorum) Outcome(output json.RawMessage) json.RawMessage {
	if len(output) == 0 {
		return nil
	}
	part, err := PointTo(output, q.AgreeOn)
	if err != nil || len(part) > MaxOutcome {
		return nil
	}
	return canonical(part)
}

// Vote is the end of a child that votes.
type Vote struct {
	Task    TaskID          // the child
	Claimer string          // who voted; "": it was pushed
	Subject string          // of the claimer's token; "": none, or it isn't known
	Status  Status          // final
	Outcome json.RawMessage // see Quorum.Outcome; nil: it is an error
	At      time.Time
}

// Tally is the state of a vote.
type Tally struct {
	quorum    Quorum
	votes     []Vote // that count, in the order of their ends
	outcomes  []outcomeCount
	alone     bool // the first vote decides
	errors    int  // votes that failed, or are without an outcome
	cancelled int  // votes that were cancelled
}

type outcomeCount struct {
	outcome string
	n       int
}

// Count adds up votes. Of several votes of a claimer the first one counts.
func (q *Quorum) Count(votes []Vote) *Tally {
	t := &Tally{quorum: *q}
	votes = slices.Clone(votes)
	slices.SortStableFunc(votes, func(a, b Vote) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Task.Number, b.Task.Number))
	})
	voted := map[string]bool{}
	for _, v := range votes {
		switch {
		case v.Status == StatusCancelled:
			t.cancelled++
		case v.Status != StatusSucceeded || v.Outcome == nil:
			t.errors++
		case v.Claimer != "" && voted[v.Claimer]:
		default:
			voted[v.Claimer] = true
			t.votes = append(t.votes, v)
			t.add(string(v.Outcome))
		}
	}
	slices.SortStableFunc(t.outcomes, func(a, b outcomeCount) int { return b.n - a.n })
	return t
}

func (t *Tally) add(outcome string) {
	at := slices.IndexFunc(t.outcomes, func(o outcomeCount) bool { return o.outcome == outcome })
	if at < 0 {
		at = len(t.outcomes)
		t.outcomes = append(t.outcomes, outcomeCount{outcome: outcome})
	}
	t.outcomes[at].n++
}

// best returns the number of votes for the leading outcome.
func (t *Tally) best() int {
	if len(t.outcomes) == 0 {
		return 0
	}
	return t.outcomes[0].n
}

// Decided reports whether an outcome got enough votes, or one that decides alone.
func (t *Tally) Decided() bool { return t.alone || t.best() >= t.quorum.Votes }

// First returns the claimer of the only vote, if that vote may decide alone; otherwise "". made is
// the number of votes that were made: all others must be errors.
func (t *Tally) First(made int) (claimer string) {
	if t.quorum.Trust == nil || len(t.votes) != 1 || made != 1+t.errors+t.cancelled || t.Decided() {
		return ""
	}
	return t.votes[0].Claimer
}

// Trust lets the only vote decide with a probability of 1 - 1/n, if its claimer agreed with the
// last n decisions and that is often enough. The draw follows from the time of the vote, which
// nobody knows beforehand: so it is the same whenever it is drawn again.
func (t *Tally) Trust(n int) {
	v := t.votes[0]
	draw := rand.New(rand.NewPCG(uint64(v.At.UnixNano()), uint64(v.Task.Number)))
	t.alone = n >= t.quorum.Trust.After && draw.Float64() < 1-1/float64(n)
}

// DecideAlone says that the only vote decided, if there is but one.
func (t *Tally) DecideAlone() { t.alone = len(t.votes) == 1 }

// Agreed returns the claimers who voted, and whether each of them voted for the outcome that was
// decided on. A vote that decided alone says nothing about its claimer.
func (t *Tally) Agreed() map[string]bool {
	all := map[string]bool{}
	if t.quorum.Trust == nil || t.alone || !t.Decided() {
		return all
	}
	for _, v := range t.votes {
		if v.Claimer != "" {
			all[v.Claimer] = string(v.Outcome) == t.outcomes[0].outcome
		}
	}
	return all
}

// Failed reports whether no outcome can get enough votes any more, or too many votes are errors.
func (t *Tally) Failed() bool {
	q := t.quorum
	possible := t.best() + q.MaxVotes - len(t.votes)
	return !t.Decided() && (t.errors+t.cancelled > q.MaxErrors || possible < q.Votes)
}

// Outcome returns the outcome that was decided on; nil: there is none.
func (t *Tally) Outcome() json.RawMessage {
	if !t.Decided() {
		return nil
	}
	return json.RawMessage(t.outcomes[0].outcome)
}

// Needed returns how many more votes may be cast now, so that none is wasted: the votes that the
// leading outcome lacks.
func (t *Tally) Needed() int {
	if t.Decided() || t.Failed() {
		return 0
	}
	if t.quorum.Trust != nil && len(t.votes) == 0 {
		return 1 // it may decide alone
	}
	return t.quorum.Votes - t.best()
}

// MarshalJSON writes the context of the next stage.
func (t *Tally) MarshalJSON() ([]byte, error) {
	type vote struct {
		Claimer string          `json:"claimer,omitempty"`
		Outcome json.RawMessage `json:"outcome"`
		At      time.Time       `json:"at"`
	}
	out := struct {
		Outcome json.RawMessage `json:"outcome"`
		Votes   []vote          `json:"votes"`
	}{Votes: []vote{}}
	out.Outcome = t.Outcome()
	for _, v := range t.votes {
		out.Votes = append(out.Votes, vote{v.Claimer, v.Outcome, v.At.UTC()})
	}
	return json.Marshal(out)
}

// String tells the tally of a vote without a decision.
func (t *Tally) String() string {
	var parts []string
	for i, o := range t.outcomes {
		if i == 10 {
			parts = append(parts, fmt.Sprintf("%d others", len(t.outcomes)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%d × %.80s", o.n, o.outcome))
	}
	if t.errors > 0 {
		parts = append(parts, fmt.Sprintf("%d without an outcome", t.errors))
	}
	if t.cancelled > 0 {
		parts = append(parts, fmt.Sprintf("%d cancelled", t.cancelled))
	}
	if len(parts) == 0 {
		parts = []string{"none"}
	}
	return fmt.Sprintf("no outcome has %d votes: %s", t.quorum.Votes, strings.Join(parts, ", "))
}

// VoteKey returns what the votes of a task share; "" for a task that is no vote.
func (c *Child) VoteKey() string {
	if c == nil || !c.Vote {
		return ""
	}
	return strconv.FormatInt(c.Parent, 10) + "." + strconv.Itoa(c.Seq)
}
