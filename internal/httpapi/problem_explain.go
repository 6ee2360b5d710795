package httpapi

import (
	"errors"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
)

// explain names the field when a body could not be read into its type: the contract knows more
// than the decoder.
func (s *Server) explain(c *fiber.Ctx, err error) error {
	var web *fiber.Error
	if !errors.As(err, &web) || web.Code != fiber.StatusBadRequest {
		return err
	}
	if found := s.checkBody(c); found != nil {
		return found
	}
	return bodyError(web.Message)
}

// explainTask is explain for one task of a batch.
func (s *Server) explainTask(raw []byte, err error) error {
	if found := s.contract.CheckTask(raw); found != nil {
		return found
	}
	return bodyError(err.Error())
}

// bodyError turns the message of a decoder into an error that names the field, if the message
// names one.
func bodyError(message string) error {
	message = strings.TrimPrefix(message, "json: ")
	if rest, ok := strings.CutPrefix(message, `unknown field "`); ok {
		return asyncflow.InvalidField(strings.TrimSuffix(rest, `"`), "is not a known field")
	}
	if rest, ok := strings.CutPrefix(message, `field "`); ok {
		name, what, _ := strings.Cut(rest, `" `)
		return asyncflow.InvalidField(name, "%s", what)
	}
	return asyncflow.InvalidField("body", "%s", message)
}
