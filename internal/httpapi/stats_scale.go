package httpapi

import (
	"context"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// GetScale returns how many tasks the workers of a stage should be able to do at once.
func (s *Server) GetScale(
	ctx context.Context, r GetScaleRequestObject,
) (GetScaleResponseObject, error) {
	target, err := readScaleTarget(r.Params.Target)
	if err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant
	stage := r.Params.Stage
	if stage == "" {
		if stage, err = s.onlyStage(tenant, r.Type); err != nil {
			return nil, err
		}
	}
	load, t, err := s.cfg.Store.StageLoad(ctx, tenant, r.Type, stage)
	if err != nil {
		return nil, err
	}
	return GetScale200JSONResponse{
		Type:             r.Type,
		Stage:            stage,
		Slots:            load.Slots(target.Std(), t.MaxInFlight),
		Running:          load.Running,
		Backlog:          load.Backlog,
		StartedPerSecond: float32(load.Started),
		ServiceMs:        float32(load.Service) / float32(time.Millisecond),
		Target:           target,
	}, nil
}

// onlyStage returns the stage of a type without others.
func (s *Server) onlyStage(tenant, taskType string) (string, error) {
	t, err := s.cfg.Store.Catalog.Type(tenant, taskType)
	if err != nil {
		return "", err
	}
	if names := t.StageNames(); len(names) > 1 {
		return "", asyncflow.InvalidField("stage", "is missing; the task type %q has the stages %s",
			taskType, strings.Join(names, ", "))
	}
	return t.Stages[0].Name, nil
}

func readScaleTarget(text string) (target api.Duration, err error) {
	if text == "" {
		return asyncflow.NewDuration(asyncflow.DefaultScaleTarget), nil
	}
	if err := target.UnmarshalText([]byte(text)); err != nil {
		return target, asyncflow.InvalidField("target", "%v", err)
	}
	if d := target.Std(); d < asyncflow.MinScaleTarget || d > asyncflow.MaxScaleTarget {
		return target, asyncflow.InvalidField("target", "is %s; it must be %s to %s", target,
			asyncflow.MinScaleTarget, asyncflow.MaxScaleTarget)
	}
	return target, nil
}
