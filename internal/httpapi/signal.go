package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// SendSignal sends a signal to a task.
func (s *Server) SendSignal(
	ctx context.Context, r SendSignalRequestObject,
) (SendSignalResponseObject, error) {
	tenant := principalOf(ctx).Tenant
	signal := asyncflow.Signal{Name: r.Body.Name, Task: r.Body.Task, Type: r.Body.Type,
		Key: r.Body.Key, Data: r.Body.Data, Keep: r.Body.Keep,
		IdempotencyKey: r.Params.IdempotencyKey}
	if err := s.checkSignal(ctx, signal); err != nil {
		return nil, err
	}
	if t, ok := s.cfg.Store.Catalog.Tenant(tenant); ok && t.Quotas.SubmitsPerSecond > 0 {
		if err := s.takeSubmits(ctx, t, 1); err != nil {
			return nil, err
		}
	}
	sent, err := s.cfg.Store.SendSignal(ctx, tenant, signal)
	return SendSignal202JSONResponse(api.SentSignal{Name: signal.Name, Type: sent.Type,
		Task: sent.Task, KeptUntil: sent.KeptUntil, Existing: sent.Existing}), err
}

// checkSignal checks what the database would refuse without naming the field, or at more cost.
func (s *Server) checkSignal(ctx context.Context, signal asyncflow.Signal) error {
	if err := signal.Validate(); err != nil || signal.Data == nil {
		return err
	}
	if err := asyncflow.CheckDocument("data", signal.Data, s.cfg.MaxContext); err != nil {
		return err
	}
	if quota := s.contextQuota(ctx); quota > 0 && len(signal.Data) > quota {
		return asyncflow.ContextOverQuota(quota, len(signal.Data))
	}
	return nil
}
