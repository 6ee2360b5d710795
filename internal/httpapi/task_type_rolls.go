package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// ListTaskTypeRolls returns the rolls that may have tasks of a type, newest first.
func (s *Server) ListTaskTypeRolls(
	ctx context.Context, r ListTaskTypeRollsRequestObject,
) (ListTaskTypeRollsResponseObject, error) {
	rolls, older, err := s.cfg.Store.TypeRolls(ctx, principalOf(ctx).Tenant, r.Type)
	if err != nil {
		return nil, err
	}
	out := ListTaskTypeRolls200JSONResponse{Data: make([]api.Roll, len(rolls)), Older: older}
	for i, roll := range rolls {
		out.Data[i] = api.Roll{
			Position:      roll.Position,
			Own:           roll.Own,
			OpenedAt:      roll.OpenedAt,
			SealedAt:      roll.SealedAt,
			DrainedAt:     roll.DrainedAt,
			IdleSince:     roll.IdleSince,
			DropsAt:       roll.DropsAt,
			Bytes:         roll.Bytes,
			TasksEstimate: roll.Tasks,
			Retention:     asyncflow.NewDuration(roll.Retention),
			NextTasks:     roll.NextTasks,
			NextAt:        roll.NextAt,
		}
	}
	return out, nil
}
