package httpapi

import (
	"bytes"

	"github.com/gofiber/fiber/v2"
)

// shortAnswer is how long an answer may be, in bytes, that isn't counted.
const shortAnswer = 16 << 10

// lendAnswer has the memory of a long answer to a GET counted until it is sent: a client that
// reads nothing keeps it for the time of a write. Over a tenant's share, or what the node
// has, it is an error. An answer to a change is given in any case: it can't be asked for again.
func (s *Server) lendAnswer(c *fiber.Ctx, tenant string) error {
	r := c.Response()
	if c.Method() != fiber.MethodGet || tenant == "" || r.IsBodyStream() || len(r.Body()) <= shortAnswer {
		return nil // without a tenant it is an operator's, or a document that all share
	}
	memory := s.answers.lend(tenant)
	doc := r.Body()
	if err := memory.take(cap(doc)); err != nil {
		return err
	}
	r.SetBodyStream(&lentAnswer{Reader: bytes.NewReader(doc), doc: doc, memory: memory}, len(doc))
	return nil
}

// lentAnswer is the body of an answer whose memory is lent. The server closes it once it is
// sent, or can't be.
type lentAnswer struct {
	*bytes.Reader
	doc    []byte
	memory loan
}

// Close gives the memory back.
func (a *lentAnswer) Close() error {
	a.memory.end()
	return nil
}
