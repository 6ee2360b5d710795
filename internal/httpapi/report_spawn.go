package httpapi

import (
	"context"
	"encoding/json"
	"strings"

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

// countSpawn refuses a report with more entries in spawn than may be, before the report is decoded:
// a task in memory takes a hundred times the bytes of the shortest text. Decode refuses other
// spellings of the name, but reads their entries first.
func countSpawn(body []byte) error {
	w := asyncflow.JSONWalk{Doc: body}
	if w.Enter() != '{' {
		return nil
	}
	for w.Next() {
		var name string
		text := w.Name()
		isSpawn := json.Unmarshal(text, &name) == nil && strings.EqualFold(name, "spawn")
		if !isSpawn || w.Space() != '[' {
			w.Skip()
			continue
		}
		w.Enter()
		n := 0
		for ; w.Next(); n++ {
			if n == asyncflow.MaxSpawn {
				return asyncflow.InvalidField("spawn",
					"has more than %d entries, which is the limit", asyncflow.MaxSpawn)
			}
			w.Skip()
		}
	}
	return nil
}
