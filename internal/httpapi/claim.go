package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/listener"
	"github.com/asyncflow/asyncflow/store"
)

// claimTasks answers a worker that asks for tasks.
func (s *Server) claimTasks(c *fiber.Ctx) error {
	r, signed, err := s.readClaim(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	p := principalOf(ctx)
	tenant := p.Tenant
	conn, _ := c.Context().Conn().(*listener.Conn)
	r.Subject, r.Named = p.Subject, p.Claimers != nil
	r.Worker = workerOf(ctx)
	r.Alive = func() bool { return conn == nil || !conn.Gone() }
	if p.Labels != nil {
		r.Labels = p.Labels.Claimer()
	}
	if err = mayClaimFrom(p, r); err != nil {
		return err
	}
	if signed {
		if err = s.maySign(ctx, tenant, r.Type, r.Stage); err != nil {
			return err
		}
	}
	if err = s.mayClaimAs(ctx, r, signed); err != nil {
		return err
	}
	all, err := s.claim(ctx, tenant, r)
	if err != nil {
		return err
	}
	if len(all) > 0 && !r.Alive() {
		s.cfg.Committer.ReleaseClaims(tenant, leasesOf(all),
			"the claimer was gone before the answer")
		all = nil
	}
	traceOf(ctx).HandsOut(all)
	if signed {
		return s.answerSigned(c, tenant, all)
	}
	return s.answerClaims(c, tenant, all)
}

func (s *Server) readClaim(c *fiber.Ctx) (r dispatcher.ClaimRequest, signed bool, err error) {
	var body api.Claim
	if err = decodeBody(c, &body); err != nil {
		return r, false, err
	}
	r = dispatcher.ClaimRequest{Type: body.Type, Stage: body.Stage, Claimer: body.Claimer,
		Max: body.Max, Wait: body.Wait.Std(), Labels: body.Labels}
	if r.Max == 0 && !mayHave(c.Request().Body(), "max") {
		r.Max = 1
	}
	if r.Max < 1 || r.Max > asyncflow.MaxClaims || len(body.Held) > asyncflow.MaxOpenClaims ||
		asyncflow.CheckName(r.Type) != nil || asyncflow.CheckName(r.Stage) != nil ||
		asyncflow.CheckClaimer(r.Claimer) != nil {
		// For these the type allows more than the contract.
		if err = s.checkBody(c); err != nil {
			return r, false, err
		}
	}
	if err = asyncflow.CheckClaimer(r.Claimer); err != nil {
		return r, false, err
	}
	if err = asyncflow.CheckClaimerLabels("labels", r.Labels); err != nil {
		return r, false, err
	}
	if r.Wait < 0 || r.Wait > asyncflow.MaxWait {
		return r, false, asyncflow.InvalidField("wait", "is %s; it must be 0s to %s", body.Wait,
			asyncflow.MaxWait)
	}
	for _, text := range body.Held {
		id, err := asyncflow.ParseTaskID(text)
		if err != nil {
			return r, false, asyncflow.InvalidField("held", "has %.80q, which is no id of a task",
				text)
		}
		r.Held = append(r.Held, id)
	}
	return r, body.Signed, nil
}

// claim takes a slot for calls that wait, if the call may wait.
func (s *Server) claim(
	ctx context.Context, tenant string, r dispatcher.ClaimRequest,
) ([]asyncflow.Delivery, error) {
	if r.Wait > 0 {
		if err := s.streams.Take(tenant, 1); err != nil {
			return nil, err
		}
		defer s.streams.Give(tenant, 1)
	}
	ctx, cancel := s.cfg.Verifier.FollowToken(ctx, principalOf(ctx))
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	all, err := s.cfg.Committer.Claim(ctx, tenant, r)
	if refusal := auth.Revoked(ctx); refusal != nil && len(all) == 0 {
		return nil, refusal
	}
	return all, err
}

// answerClaims writes deliveries. If there is no memory for them, they are given back.
func (s *Server) answerClaims(c *fiber.Ctx, tenant string, all []asyncflow.Delivery) error {
	doc := []byte(`{"claims":[`)
	for i := range all {
		if i > 0 {
			doc = append(doc, ',')
		}
		doc = s.cfg.Sender.AppendDelivery(doc, &all[i])
	}
	if err := s.writeClaims(c, tenant, all, append(doc, "]}\n"...)); err != nil {
		return err
	}
	s.checkArrival(c, tenant, all)
	return nil
}

func (s *Server) writeClaims(
	c *fiber.Ctx, tenant string, all []asyncflow.Delivery, doc []byte,
) error {
	if err := writeDocument(c, http.StatusOK, doc); err != nil {
		return err
	}
	if err := lend(c, answerMemoryOf(c.UserContext()), true); err != nil {
		s.cfg.Committer.ReleaseClaims(tenant, leasesOf(all), "there was no memory for the answer")
		return err
	}
	return nil
}

// checkArrival looks a while later whether the claimer's connection took the answer. Then the
// claims stand for the processing time of their stage, as if something had been heard of them: a
// person may think for longer than a claim stands at first. A program that asks for signed
// deliveries sends a heartbeat before it passes one on: if its machine sleeps until then, the task
// goes back in line.
//
// Over the tenant's share, claims stand as they do at first. Their late reports still count.
func (s *Server) checkArrival(c *fiber.Ctx, tenant string, all []asyncflow.Delivery) {
	conn, known := c.Context().Conn().(*listener.Conn)
	if !known || len(all) == 0 || s.arrived.Take(tenant, len(all)) != nil {
		return
	}
	if c.Request().Header.ConnectionClose() {
		conn.Linger() // until the client takes the answer and closes
	}
	end := conn.Sent() + int64(len(c.Response().Body()))
	leases := make([]asyncflow.Lease, len(all))
	for i := range all { // without what would stay in memory
		l := &all[i].Lease
		leases[i] = asyncflow.Lease{ID: l.ID, Seq: l.Seq, Stage: l.Stage, Claimer: l.Claimer,
			LeasedAt: l.LeasedAt, Until: l.Until}
	}
	s.extendArrivedClaim(conn, end, tenant, leases, arrivalLooks)
}

// arrivalLooks is how often it is looked whether an answer arrived.
const arrivalLooks = 2

// Bounds of the claims that may not have arrived yet. Each takes some 300 bytes for 10 s at most.
const (
	maxArrivals          = 65_536
	maxArrivalsPerTenant = maxArrivals / 4
)

func (s *Server) extendArrivedClaim(
	conn *listener.Conn, n int64, tenant string, leases []asyncflow.Lease, looks int,
) {
	time.AfterFunc(s.cfg.ClaimCheck, func() {
		took := conn.Took(n)
		if !took && looks > 1 {
			s.extendArrivedClaim(conn, n, tenant, leases, looks-1)
			return
		}
		if took {
			s.cfg.Committer.Prolong(tenant, leases)
		}
		s.arrived.Give(tenant, len(leases))
	})
}

func leasesOf(all []asyncflow.Delivery) []asyncflow.Lease {
	leases := make([]asyncflow.Lease, len(all))
	for i := range all {
		leases[i] = all[i].Lease
	}
	return leases
}

// ReleaseClaim puts a claimed task back in line.
func (s *Server) ReleaseClaim(
	ctx context.Context, _ ReleaseClaimRequestObject,
) (ReleaseClaimResponseObject, error) {
	if completionOf(ctx).Claimer == "" {
		return nil, s.pushed(ctx)
	}
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "the claimer gave it back"}
	status, err := s.report(ctx, o)
	return ReleaseClaim200JSONResponse{Status: status}, err
}

// pushed returns the error of a call that is for claims, about a delivery that was pushed.
func (s *Server) pushed(ctx context.Context) error {
	if err := completionOf(ctx).Expired(s.cfg.Store.Clock.Now()); err != nil {
		return err
	}
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"this delivery was pushed: only a claim can be given back, or its answer be reported")
}

// extendClaim moves the end of a claim at its first sign of life.
func (s *Server) extendClaim(ctx context.Context, a attempt) (stands bool, err error) {
	l, stands, err := s.cfg.Committer.LeaseOf(ctx, a.Tenant, a.Task, a.Seq)
	if err != nil || !stands || !a.taskType.Unseen(l) {
		return stands, err
	}
	deadline := s.cfg.Store.Clock.Now().Add(a.taskType.ProcessingTime(l.Stage))
	deadline = l.Options.Lifetime.EndsBefore(deadline)
	return s.extend(ctx, a, l, deadline, store.Checkpoint{}, time.Time{})
}

// claimTime is how long a call that asks for tasks may take.
const claimTime = requestTime + asyncflow.MaxWait + time.Second

// mayClaimFrom refuses a stage that the caller's token doesn't list, if it lists any.
func mayClaimFrom(p auth.Principal, r dispatcher.ClaimRequest) error {
	if p.Stages == nil || p.Stages.Has(r.Type, r.Stage) {
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden,
		"this token may not claim from stage %s of %s; its claim claims_types allows: %.200s",
		r.Stage, r.Type, p.Stages)
}

// mayClaimAs refuses a claimer that the caller's token doesn't stand for. A token that lists
// claimers is bound to these in every stage; another one to its subject, in the stages where names
// count. Signed deliveries are for a developer's machine: it is no voter, and uses a random name.
func (s *Server) mayClaimAs(ctx context.Context, r dispatcher.ClaimRequest, signed bool) error {
	p := principalOf(ctx)
	if p.Claimers != nil {
		if p.Claimers.Has(r.Claimer) {
			return nil
		}
		return asyncflow.Errorf(asyncflow.CodeForbidden,
			"this token may not claim as %s; its claim claimers allows: %.200s", r.Claimer,
			p.Claimers)
	}
	t, err := s.cfg.Store.Catalog.Fresh(ctx, p.Tenant, r.Type)
	if err != nil {
		return err
	}
	i := t.StageIndex(r.Stage)
	if i < 0 || !t.Stages[i].NeedsIdentity() || signed || p.Subject == r.Claimer {
		return nil
	}
	return asyncflow.Errorf(asyncflow.CodeForbidden,
		"this token may claim from stage %s of %s only as "+
			"its sub, %q, not as %s: the stage has a quorum or a window, for which names count; a "+
			"token with the claim claimers may use other names", r.Stage, r.Type, p.Subject, r.Claimer)
}
