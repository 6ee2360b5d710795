package governance

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// heldPause is how long the job erase leaves a roll alone that another transaction held for
	// longer than a step waits. Meanwhile it erases in other rolls.
	heldPause = 20 * time.Second
	// heldReport is for how long a roll may be held before runs of the job fail with it.
	heldReport = time.Minute
	// heldForget is when a roll is forgotten that no step looked at again: its type may be gone.
	heldForget = 5 * time.Minute
)

// heldRoll names a roll with contents of a type.
type heldRoll struct {
	tenant, taskType string
	position         int
}

// heldTimes says since when a roll is held, and until when it is left alone.
type heldTimes struct{ since, until time.Time }

// heldRolls are the rolls that the job erase leaves alone for a while, on this node. An open
// transaction that submits by SQL holds the rolls of its tasks.
type heldRolls struct {
	mu    sync.Mutex
	rolls map[heldRoll]heldTimes
}

// positions returns the rolls of a type that are left alone, and until when the first of them is;
// zero: there are none.
func (h *heldRolls) positions(
	tenant, taskType string, now time.Time,
) (positions []int, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, t := range h.rolls {
		if r.tenant == tenant && r.taskType == taskType && now.Before(t.until) {
			positions = append(positions, r.position)
			until = earlier(until, t.until)
		}
	}
	slices.Sort(positions)
	return positions, until
}

// note remembers that a step found a roll held.
func (h *heldRolls) note(tenant, taskType string, position int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rolls == nil {
		h.rolls = map[heldRoll]heldTimes{}
	}
	r := heldRoll{tenant, taskType, position}
	t := h.rolls[r]
	if t.since.IsZero() {
		t.since = now
	}
	t.until = now.Add(heldPause)
	h.rolls[r] = t
}

// freed forgets a roll in which a step got the locks. A step that erases nothing needs none, and
// says nothing about the roll.
func (h *heldRolls) freed(tenant, taskType string, position int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.rolls, heldRoll{tenant, taskType, position})
}

// errors returns an error for each roll that a step found held a short time ago, and that is held
// for long.
func (h *heldRolls) errors(now time.Time) (all []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r, t := range h.rolls {
		held := now.Sub(t.since)
		switch {
		case now.After(t.until.Add(heldForget)):
			delete(h.rolls, r)
		case held >= heldReport && now.Before(t.until.Add(heldPause)):
			all = append(all, fmt.Errorf(
				"contents of %s/%s: another transaction has held roll %d for %s", r.tenant,
				r.taskType, r.position, held.Round(time.Second)))
		}
	}
	slices.SortFunc(all, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return all
}
