package hot

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// InFlight counts the leases of a type by endpoint; "": leases for any endpoint.
type InFlight struct {
	All map[string]int
	// Lately counts, for each endpoint that is tried or ramped up, the leases that began after that
	// did: see asyncflow.Health.CountsSince. Earlier tasks, answered with 202, say nothing about
	// its health.
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

// Admission decides which tasks a lease takes. It is called in the order of the tasks.
type Admission interface {
	// Capacity returns how many tasks of a stage may be admitted at most.
	Capacity(stage string) int
	// Admit returns the endpoint for the next task of a stage ("": any), or the reason that blocks
	// it.
	Admit(stage string) (endpoint string, blocked asyncflow.WaitReason)
	// AdmitKey reports whether the rate of a flow key allows another task.
	AdmitKey(key string) bool
}

// Candidate is a task that a lease may take.
type Candidate struct {
	asyncflow.Lease                      // its Options are read later
	key             string               // its flow key
	LineKey         string               // the key of its token row: see TaskType.LineKeyOf
	Placed          time.Time            // when it came to its place in the order
	Blocked         asyncflow.WaitReason // what blocks it; "": nothing
	// nothing blocks it, but it is over the number of the lease
	back bool
	turn turn // of a fair type: after it
	// it goes before the turns of a fair type
	raised bool
}

// judge sets for each candidate what blocks it; at most n are not blocked. It returns the flow keys
// with a first blocked task that may be due.
func judge(
	ctx context.Context, conn *postgres.TenantConn, t *config.Type, found []Candidate,
	admission Admission, n int,
) (again []string, err error) {
	orders, err := readOrders(ctx, conn, t, found)
	if err != nil {
		return nil, err
	}
	for i := range found {
		c := &found[i]
		if c.Blocked != "" { // by the tasks before it in the line of its stage
			continue
		}
		if n == 0 { // previously blocked ones were taken in addition to n
			c.back = true
			continue
		}
		order := orders[c.key]
		if order != nil && !order.has(c) {
			c.Blocked = asyncflow.WaitFlow
			continue
		}
		if c.Endpoint, c.Blocked = admission.Admit(c.Stage); c.Blocked != "" {
			continue
		}
		if c.key != "" && rated(t, c) && !admission.AdmitKey(c.key) {
			c.Blocked = asyncflow.WaitFlow
			c.Endpoint = ""
			continue
		}
		if order != nil {
			order.useOne()
		}
		n--
	}
	for key, order := range orders {
		if order.passed {
			again = append(again, key)
		}
	}
	return again, nil
}

// rated reports whether the rate of a flow key applies to a task. In an ordered flow it applies
// only to tasks that begin: a begun task blocks every other task anyway.
func rated(t *config.Type, c *Candidate) bool {
	return !t.Flow.Rate.IsZero() && !(t.Flow.Ordered && t.Started(c.Stage, c.Attempt))
}
