package tasks

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Run is where a task runs.
type Run struct {
	Since     time.Time     // when it was leased
	Wait      time.Duration // for which it was due until then; less than 0: it isn't known
	Heartbeat time.Time     // when the last one came; zero: none did
	Node      string        // id of the node that sends it, or handed it out
	Worker    string        // the name that the worker gave; see asyncflow.WorkerName
	Endpoint  string        // id of the endpoint; "": it isn't known, or none
	URL       string        // of the endpoint
	Claimer   string        // who has asked for it; "": it is pushed
}

// complete fills in what follows from the columns of a run: how long the task was due, nil: that
// isn't known; and where it runs, if its lease names an endpoint or the type tells.
func (r *Run) complete(t *config.Type, stage string, due *time.Time, endpoint *string) {
	r.Wait = -1
	if due != nil {
		r.Wait = max(0, r.Since.Sub(*due))
	}
	r.Node = asyncflow.NodeID(r.Node)
	r.Endpoint = t.RunsAt(asyncflow.Lease{Stage: stage, Claimer: r.Claimer, LeasedAt: r.Since},
		endpoint)
	r.URL = t.EndpointURL(r.Endpoint)
}
