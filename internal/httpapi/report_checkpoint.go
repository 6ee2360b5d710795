package httpapi

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
)

// checkpointRate is how many bytes of checkpoints a tenant writes a second on a node. An attempt
// may write any number of them, and Postgres keeps the bytes of replaced ones until a vacuum.
const checkpointRate = 8 << 20

// checkpointOf checks the checkpoint of a report, and returns nil for none.
func (s *Server) checkpointOf(doc json.RawMessage) (json.RawMessage, error) {
	if len(doc) == 0 || string(doc) == "null" { // as many libraries write an absent one
		return nil, nil
	}
	return doc, asyncflow.CheckDocument("checkpoint", doc, s.cfg.MaxContext)
}

// mayKeep refuses a checkpoint over its tenant's rate, and the checkpoint of a vote: the next
// claimer is another one, who is not to see what this one found.
func (s *Server) mayKeep(a attempt, l asyncflow.Lease, checkpoint json.RawMessage) error {
	if l.Options.Child != nil && l.Options.Child.Vote {
		return asyncflow.InvalidField("checkpoint", "must not be given: a vote has none")
	}
	_, wait := s.checkpoints.Take(a.Tenant, checkpointRate, len(checkpoint), time.Now())
	if wait == 0 {
		return nil
	}
	return &asyncflow.Error{Code: asyncflow.CodeRateLimited, RetryAfter: wait,
		Message: fmt.Sprintf("a tenant may write %d bytes of checkpoints per second on a node; "+
			"try again in %d s", checkpointRate, ratelimit.WholeSeconds(wait))}
}
