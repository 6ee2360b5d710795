package httpapi

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// mayClaimAs refuses a claimer that the caller's token doesn't stand for. A token that lists
// claimers is bound to these in every stage; another one to its subject, in the stages where names
// count. Signed deliveries are for a developer's machine: it is no voter, and has a random name.
func (s *Server) mayClaimAs(ctx context.Context, r dispatcher.ClaimRequest, signed bool) error {
	p := principalOf(ctx)
	if p.Claimers != nil {
		if p.Claimers.Has(r.Claimer) {
			return nil
		}
		return asyncflow.Errorf(asyncflow.CodeForbidden,
			"this token may not claim as %s; its claim claimers allows: %.200s", r.Claimer, p.Claimers)
	}
	t, err := s.cfg.Store.Catalog.Fresh(ctx, p.Tenant, r.Type)
	if err != nil {
		return err
	}
	i := t.StageIndex(r.Stage)
	if i < 0 || !t.Stages[i].NeedsIdentity() || signed || p.Subject == r.Claimer {
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden, "this token may claim from stage %s of %s only as "+
		"its sub, %q, not as %s: the stage has a quorum or a window, for which names count; a token "+
		"with the claim claimers may use other names", r.Stage, r.Type, p.Subject, r.Claimer)
}
