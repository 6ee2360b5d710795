package httpapi

import (
	"bytes"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
)

// completeTask accepts a worker's report that the stage is done.
func (s *Server) completeTask(c *fiber.Ctx) error {
	o, err := s.readCompletion(c)
	if err != nil {
		return err
	}
	return s.answerReport(c, o)
}

// failTask accepts a worker's report that the attempt failed.
func (s *Server) failTask(c *fiber.Ctx) error {
	o, err := s.readFailure(c)
	if err != nil {
		return err
	}
	return s.answerReport(c, o)
}

func (s *Server) readCompletion(c *fiber.Ctx) (asyncflow.Outcome, error) {
	var body api.Completion
	err := decodeBody(c, &body)
	switch {
	case err != nil:
	case string(body.Output) == "null": // as in answers: many libraries write an absent output so
		body.Output = nil
	case len(body.Output) > 0:
		err = asyncflow.CheckDocument("output", body.Output, s.cfg.MaxContext)
	}
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: body.Output}, err
}

func (s *Server) readFailure(c *fiber.Ctx) (asyncflow.Outcome, error) {
	var body api.Failure
	if err := decodeBody(c, &body); err != nil {
		return asyncflow.Outcome{}, err
	}
	if body.Error == "" || len(body.Error) > callbacks.MaxErrorBytes ||
		mayHave(c.Request().Body(), "retry_after") {
		// For these the type allows more than the contract.
		if err := s.checkBody(c); err != nil {
			return asyncflow.Outcome{}, err
		}
	}
	o := asyncflow.Outcome{
		Kind:       asyncflow.OutcomeFailed,
		Error:      callbacks.Clean(body.Error, callbacks.MaxErrorBytes),
		RetryAfter: body.RetryAfter.Std(),
	}
	if body.Retryable != nil && !*body.Retryable {
		o.Kind = asyncflow.OutcomeRejected
	}
	return o, nil
}

// mayHave reports whether a JSON document may have a field of a name, written plainly or with
// escapes.
func mayHave(doc []byte, name string) bool {
	return bytes.Contains(doc, []byte(name)) || bytes.Contains(doc, []byte(`\u`))
}

func (s *Server) answerReport(c *fiber.Ctx, o asyncflow.Outcome) error {
	status, err := s.report(c.UserContext(), o)
	if err != nil {
		return err
	}
	doc, err := encode(api.CallbackResult{Status: status})
	if err != nil {
		return err
	}
	return writeDocument(c, http.StatusOK, doc)
}
