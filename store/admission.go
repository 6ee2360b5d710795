package store

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
)

// InFlight counts the leases of a type by the endpoint that they are for: "" where it
// doesn't matter.
type InFlight struct {
	All map[string]int
	// Lately counts those that were begun since an endpoint is tried again, or ramped up:
	// what it has had from before, answered with 202, says nothing of its health.
	Lately map[string]int
}

func (f InFlight) all() (sum int) {
	for _, n := range f.All {
		sum += n
	}
	return sum
}

// Begin counts one more.
func (f InFlight) Begin(endpoint string) {
	f.All[endpoint]++
	f.Lately[endpoint]++
}

// Admission decides which tasks a lease takes. It is asked in the order of the tasks.
type Admission interface {
	// Room returns how many tasks of a stage may be admitted at most.
	Room(stage string) int
	// Admit tells which endpoint the next task of a stage may go to ("": any), or what
	// keeps it.
	Admit(stage string) (endpoint string, held asyncflow.WaitReason)
	// AdmitKey tells whether the rate of a flow key allows another task.
	AdmitKey(key string) bool
}

// candidate is a task that a lease may take.
type candidate struct {
	asyncflow.Lease // its Options are read later
	key             string
	placed          time.Time            // when it got to its place
	held            asyncflow.WaitReason // what keeps it; "": nothing
	back            bool                 // nothing does, but there are too many
}

// judge says of each candidate what keeps it, if anything does; of n at most, nothing.
// It returns the flow keys with tasks that are held and whose turn it may be.
func judge(ctx context.Context, conn *tenantConn, t *Type, found []candidate, admission Admission, n int) (again []string, err error) {
	turns, err := readTurns(ctx, conn, t, found)
	if err != nil {
		return nil, err
	}
	for i := range found {
		c := &found[i]
		if n == 0 { // those that were held came on top
			c.back = true
			continue
		}
		turn := turns[c.key]
		if c.key != "" && !turn.has(c) {
			c.held = asyncflow.WaitFlow
			continue
		}
		if c.Endpoint, c.held = admission.Admit(c.Stage); c.held != "" {
			continue
		}
		if c.key != "" && t.rated(c) && !admission.AdmitKey(c.key) {
			c.held, c.Endpoint = asyncflow.WaitFlow, ""
			continue
		}
		if c.key != "" {
			turn.take()
		}
		n--
	}
	for key, turn := range turns {
		if turn.passed {
			again = append(again, key)
		}
	}
	return again, nil
}

// rated tells whether the rate of a flow key is about a task. In order it is about those
// that begin: one that has begun keeps all others waiting.
func (t *Type) rated(c *candidate) bool {
	return !t.Flow.Rate.IsZero() && !(t.Flow.Ordered && t.Started(c.Stage, c.Attempt))
}
