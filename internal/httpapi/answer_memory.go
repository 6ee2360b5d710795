package httpapi

import (
	"bytes"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow/internal/httpapi/internal/share"
)

// shortAnswer is the length up to which the memory of an answer isn't counted, in bytes.
const shortAnswer = 16 << 10

// lendAnswer counts the memory of a long answer to a GET until the answer is sent: a client that
// reads nothing keeps the answer in memory for the time of a write. Over the tenant's or the
// node's share it returns an error. It doesn't count the answer to a change, because the client
// can't ask for that again.
func (s *Server) lendAnswer(c *fiber.Ctx, tenant string) error {
	if c.Method() != fiber.MethodGet {
		return nil
	}
	return s.lend(c, tenant)
}

// lend is lendAnswer for a call of any method.
func (s *Server) lend(c *fiber.Ctx, tenant string) error {
	r := c.Response()
	if r.IsBodyStream() || len(r.Body()) <= shortAnswer {
		return nil
	}
	if tenant == "" { // an operator's answer, or a document that all callers share
		return nil
	}
	memory := s.answers.Lend(tenant)
	doc := r.Body()
	if err := memory.Take(cap(doc)); err != nil {
		return err
	}
	r.SetBodyStream(&lentAnswer{bytes.NewReader(doc), doc, memory}, len(doc))
	return nil
}

// lentAnswer is the body of an answer whose memory is counted. The server closes it when it has
// sent it, or can't.
type lentAnswer struct {
	*bytes.Reader
	doc    []byte
	memory share.Loan
}

// Close gives the memory back.
func (a *lentAnswer) Close() error {
	a.memory.End()
	return nil
}
