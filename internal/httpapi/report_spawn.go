package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// checkSpawn checks the tasks that a report starts. An answer that was passed on becomes a failed
// attempt, as after a push.
func (s *Server) checkSpawn(
	ctx context.Context, a attempt, l asyncflow.Lease, o asyncflow.Outcome,
) (asyncflow.Outcome, error) {
	err := a.taskType.CheckSpawn(l, o)
	if err == nil {
		err = s.cfg.Committer.AdmitSpawn(ctx, a.taskType, l.ID, l.Seq, o)
	}
	if err != nil && o.Status != 0 && asyncflow.CodeOf(err) != asyncflow.CodeUnavailable {
		return o.Refused(err), nil
	}
	return o, err
}
