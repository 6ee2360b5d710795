package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
)

// readInput answers with the input of the delivery that the completion token vouches for.
func (s *Server) readInput(c *fiber.Ctx) error { return s.answerPast(c, "") }

// readOutput answers with the latest output of a stage of its task.
func (s *Server) readOutput(c *fiber.Ctx) error { return s.answerPast(c, c.Params("stage")) }

// answerPast answers with a document of a delivery's past, byte for byte.
func (s *Server) answerPast(c *fiber.Ctx, name string) error {
	doc, err := s.pastDocument(c.UserContext(), name)
	if err != nil {
		return err
	}
	return writeDocument(c, http.StatusOK, doc)
}

func (s *Server) pastDocument(ctx context.Context, name string) ([]byte, error) {
	t, err := s.knownTenant(ctx, completionOf(ctx).Tenant)
	if err != nil {
		return nil, err
	}
	// A suspended tenant's attempts are refused, like its own tokens.
	if err = t.Refusal(); err != nil {
		return nil, err
	}
	a, err := s.attemptOf(ctx)
	if err != nil {
		return nil, err
	}
	l, stands, err := s.cfg.Committer.LeaseOf(ctx, a.Tenant, a.Task, a.Seq)
	if err == nil && !stands {
		err = s.ended(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	l.Stage, _ = a.taskType.Mapped(l.Stage, l.Attempt)
	rule := a.taskType.Delivers(l.Stage)
	if rule == nil || !slices.Contains(rule.Names(), name) {
		return nil, asyncflow.Errorf(asyncflow.CodeForbidden,
			"stage %s of %s doesn't ask for this: see deliver in its type", l.Stage, a.Task.Type)
	}
	doc, err := s.cfg.Store.PastDocument(ctx, a.taskType, l, name)
	if err == nil && doc == nil {
		err = asyncflow.Errorf(asyncflow.CodeNotFound, "stage %s has no output yet", name)
	}
	return doc, err
}
