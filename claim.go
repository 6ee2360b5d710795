package asyncflow

import (
	"strings"
	"time"
)

// Mode says how workers get the tasks of a stage.
type Mode string

const (
	ModePush  Mode = "push"  // asyncflow sends them to an endpoint
	ModeClaim Mode = "claim" // workers ask for them
	ModeWait  Mode = "wait"  // nobody does: they wait for a signal
)

// Identity says how the claimers of a stage prove who they are.
type Identity string

// IdentityUnchecked lets a token claim under any name, even if the names count.
const IdentityUnchecked Identity = "unchecked"

// NeedsIdentity reports whether a claimer must be who the token says: what a quorum, trust or a
// window promises holds only for names that nobody can choose.
func (s Stage) NeedsIdentity() bool {
	return (s.VotesAreNamed() || s.Window != nil) && s.Identity != IdentityUnchecked
}

// Bounds of claims.
const (
	// MaxClaims is the most tasks in one answer.
	MaxClaims = 1000
	// MaxOpenClaims is the most tasks of a stage that one claimer may hold at once.
	MaxOpenClaims = 1000
	// MaxClaimer is the length of the longest claimer, in bytes.
	MaxClaimer = 128
	// FirstClaim is how long a claim stands until the claimer is heard of: by a heartbeat, or by
	// progress. A claim with a lost answer is back in line after that.
	FirstClaim = 15 * time.Second

	MaxWindowTasks = 1000
	MinWindow      = time.Second
	MaxWindow      = 7 * 24 * time.Hour
)

// Window bounds the distinct tasks of a stage that are shown to one claimer in any time of a
// length, so that nobody can fish for a certain task. Tasks that were given back count, too.
type Window struct {
	Tasks int      `json:"tasks"`
	Per   Duration `json:"per"`
	// Random false gives out the first tasks in line; otherwise the choice among the first ones is
	// random: see Picks.
	Random *bool `json:"random,omitempty"`
}

// Picks reports whether a claimer's tasks are chosen at random among the first Tasks in line, so
// that claimers can't predict who gets which. A task is overtaken only by tasks that came in line
// less than Per after it.
func (w *Window) Picks() bool { return w != nil && (w.Random == nil || *w.Random) }

// Claims reports whether workers ask for the tasks of a stage.
func (t TaskType) Claims(stage string) bool {
	i := t.StageIndex(stage)
	return i >= 0 && t.Stages[i].Mode == ModeClaim
}

// LineForClaims reports whether a task in line at a stage waits for a claimer. If the stage fans
// out, only the children do.
func (t TaskType) LineForClaims(stage string, child bool) bool {
	i := t.StageIndex(stage)
	return i >= 0 && t.Stages[i].Mode == ModeClaim && (child || t.Stages[i].Spreads() == nil)
}

// HasClaims reports whether workers ask for the tasks of some stage, and of all stages.
func (t TaskType) HasClaims() (some, all bool) {
	all = true
	for _, s := range t.Stages {
		some = some || s.Mode == ModeClaim
		all = all && s.Mode == ModeClaim && s.Spreads() == nil
	}
	return some, all
}

// FirstClaimOf returns how long a claim of a stage's task stands at first.
func (t TaskType) FirstClaimOf(stage string) time.Duration {
	return min(FirstClaim, t.ProcessingTime(stage))
}

// Unseen reports whether a lease is a claim without a heartbeat or report since it was handed out.
// If it ends like that, its answer may have been lost, and no attempt is counted.
func (t TaskType) Unseen(l Lease) bool {
	return l.Claimer != "" && l.Until.Sub(l.LeasedAt) <= t.FirstClaimOf(l.Stage)
}

// Reordered returns a lease, as it is stored, with about the place in the order that its task had
// before: a lease doesn't keep it.
func (t TaskType) Reordered(l Lease) Lease {
	l.OrderTime = l.LeasedAt
	if l.Attempt == 1 { // retries get no head start
		l.OrderTime = EnterOrder(t, t.StageIndex(l.Stage), l.Options, l.LeasedAt)
	}
	return l
}

// claimedBy is the beginning of the endpoint of an attempt that was claimed.
const claimedBy = "claimer:"

// ClaimedBy returns what stands in the journal in place of an endpoint for an attempt of a claimer:
// its name, without spaces, and the subject of the token that claimed, if there is one. "": the
// task was pushed.
func ClaimedBy(claimer, subject string) string {
	switch {
	case claimer == "":
		return ""
	case subject == "":
		return claimedBy + claimer
	}
	return claimedBy + claimer + " " + subject
}

// ClaimerOf returns who claimed an attempt by its endpoint in the journal, and the subject of the
// token that did; "": it was pushed, or the token had no subject.
func ClaimerOf(endpoint string) (claimer, subject string) {
	both, claimed := strings.CutPrefix(endpoint, claimedBy)
	if !claimed {
		return "", ""
	}
	claimer, subject, _ = strings.Cut(both, " ")
	return claimer, subject
}

// CheckClaimer checks the name of a claimer: 1 to 128 printable ASCII characters without spaces.
func CheckClaimer(name string) error {
	if n := len(name); n < 1 || n > MaxClaimer {
		return InvalidField("claimer", "has %d bytes; it must have 1 to %d", n, MaxClaimer)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return InvalidField("claimer", "must be ASCII characters without spaces")
	}
	return nil
}

func (s Stage) checkMode(field string, out *problems) {
	switch s.Mode {
	case "", ModePush, ModeClaim:
	case ModeWait:
		s.checkWait(field, out)
	default:
		out.add(field+".mode", "is %.40q; it must be push, claim or wait", string(s.Mode))
	}
	if s.Wait != nil && s.Mode != ModeWait {
		out.add(field+".wait", "needs the mode wait")
	}
	if s.Identity != "" && s.Identity != IdentityUnchecked {
		out.add(field+".identity", "is %.40q; it must be unchecked", string(s.Identity))
	}
	w := s.Window
	if w == nil || s.Mode == ModeWait {
		return
	}
	if s.Mode != ModeClaim {
		out.add(field+".window", "needs the mode claim")
	}
	if w.Tasks < 1 || w.Tasks > MaxWindowTasks {
		out.add(field+".window.tasks", "is %d; it must be 1 to %d", w.Tasks, MaxWindowTasks)
	}
	checkDuration(out, field+".window.per", w.Per, MinWindow, MaxWindow)
}

// checkClaims refuses what is counted when a task is pushed, for a type with claimed tasks.
func (t TaskType) checkClaims(out *problems) {
	if t.Flow != nil && t.HasQuorum() {
		out.add("flow", "can't be combined with a quorum")
	}
	if some, _ := t.HasClaims(); !some {
		return
	}
	if t.Flow != nil {
		out.add("flow", "can't be combined with a stage of mode claim")
	}
	if t.MaxInFlight > 0 {
		out.add("max_in_flight", "can't be combined with a stage of mode claim")
	}
	if !t.Rate.IsZero() {
		out.add("rate", "can't be combined with a stage of mode claim")
	}
}
