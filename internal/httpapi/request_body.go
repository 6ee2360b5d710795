package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/listener"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/share"
)

// A call reads its own body, once its caller is known. The memory for the body grows with the
// bytes that arrive, and is lent from a byte budget. What is left of a body when its call ends
// would be read as the connection's next request, so endBody reads the rest or makes the connection
// close.

const (
	// headerLimit bounds the header of a request, in bytes.
	headerLimit = 16 << 10

	// readAhead is what the server reads of a body before any handler runs, in bytes. It uses
	// memory of the connection and doesn't count against a byte budget.
	readAhead = 8 << 10

	// unwantedBody bounds the body of a call that takes none, in bytes: "{}" is accepted.
	unwantedBody = 1 << 10

	// reportBody bounds the body of a report without an output, in bytes.
	reportBody = 64 << 10

	// linkBody bounds the form of a link, in bytes: a name of the longest characters, each escaped.
	linkBody = 4 << 10

	// documentBody is what may be in a body beside the largest context, in bytes. If the context is
	// over its limit by less than this, the error still names the field.
	documentBody = 1 << 20

	// strangersBody is how much of a refused body is read to keep its connection, in bytes. It
	// also bounds a body that comes with an expired completion token.
	strangersBody = 64 << 10

	// bodyHeadroom is how far over the largest limit a refused body is still read and dropped, in
	// bytes, so that its sender gets the answer. The body is too large, or there is no memory for
	// it, but the sender's token is good.
	bodyHeadroom = 16 << 20
)

// bodyLimit returns the largest body of a call, in bytes.
func (s *Server) bodyLimit(o *contract.Operation) int {
	switch {
	case o.Route.Operation.RequestBody == nil:
		return unwantedBody
	case o.ID == "submitTasks":
		return s.cfg.MaxBody
	case o.ID == "failTask":
		return min(s.cfg.MaxBody, reportBody)
	case o.ID == "decideLink":
		return linkBody
	}
	return min(s.cfg.MaxBody, s.cfg.MaxContext+documentBody)
}

// readBody reads the body of a call by a known caller. The memory for it is lent until the
// call ends.
func (s *Server) readBody(c *fiber.Ctx, o *contract.Operation, memory *share.Loan) error {
	r := c.Request()
	if !r.IsBodyStream() {
		return nil // there is none
	}
	n := r.Header.ContentLength()
	limit := s.bodyLimit(o)
	if n > strangersBody && o.Access == contract.AccessCompletion {
		err := completionOf(c.UserContext()).Expired(s.cfg.Store.Clock.Now())
		if err != nil {
			return err
		}
	}
	switch {
	case n > limit:
		return s.bodyTooLarge(r, o, fmt.Sprintf("is %d bytes", n), limit)
	case n >= 0 && n <= readAhead: // all of it is in the connection's own memory
		r.Body()
		return nil
	case n < 0:
		return s.readChunks(c, o, limit, memory)
	}
	body, err := readGrowing(r.BodyStream(), n, memory)
	if err != nil {
		return s.bodyFailed(c, err)
	}
	if len(body) < n {
		return s.bodyFailed(c, io.ErrUnexpectedEOF)
	}
	r.SetBodyRaw(body)
	return nil
}

// readChunks is readBody for a chunked body. It drops the trailer: fasthttp would add it to the
// header, which was checked before.
func (s *Server) readChunks(
	c *fiber.Ctx, o *contract.Operation, limit int, memory *share.Loan,
) error {
	r := c.Request()
	var header fasthttp.RequestHeader
	r.Header.CopyTo(&header)
	if o.Access == contract.AccessCompletion &&
		completionOf(c.UserContext()).Expired(s.cfg.Store.Clock.Now()) != nil {
		limit = min(limit, strangersBody)
	}
	body, err := readGrowing(r.BodyStream(), limit+1, memory)
	switch {
	case err != nil:
		return s.bodyFailed(c, err)
	case len(body) > limit:
		return s.bodyTooLarge(r, o, fmt.Sprintf("is more than %d bytes", limit), limit)
	case cutOff(c.Context()):
		return s.bodyFailed(c, io.ErrUnexpectedEOF)
	}
	r.SetBodyRaw(body)
	header.CopyTo(&r.Header)
	return nil
}

// readGrowing reads up to n bytes of a stream into memory that doubles as bytes arrive. It
// returns fewer bytes if the stream ends earlier.
func readGrowing(stream io.Reader, n int, memory *share.Loan) ([]byte, error) {
	var body []byte
	for len(body) < n {
		if len(body) == cap(body) {
			size := min(max(2*len(body), 2*readAhead), n)
			if err := memory.Take(size - cap(body)); err != nil {
				return nil, err
			}
			larger := make([]byte, len(body), size)
			copy(larger, body)
			body = larger
		}
		m, err := stream.Read(body[len(body):cap(body)])
		body = body[:len(body)+m]
		if errors.Is(err, io.EOF) {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}

// bodyFailed returns the error that a caller gets when its body could not be read. If there was
// no memory for the body it reads the rest, unless that is long; else it closes the connection.
func (s *Server) bodyFailed(c *fiber.Ctx, err error) error {
	var known *asyncflow.Error
	if errors.As(err, &known) {
		dropBody(c.Request(), s.cfg.MaxBody+bodyHeadroom)
		return err
	}
	c.Context().SetConnectionClose()
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, fasthttp.ErrTimeout) {
		return fiber.ErrRequestTimeout
	}
	return asyncflow.InvalidField("body", "ends early, or its chunks can't be read")
}

// bodyTooLarge refuses a body; size is how large it is, in words.
func (s *Server) bodyTooLarge(
	r *fasthttp.Request, o *contract.Operation, size string, limit int,
) error {
	if o.Route.Operation.RequestBody == nil {
		return errUnwantedBody
	}
	dropBody(r, s.cfg.MaxBody+bodyHeadroom)
	return tooLarge("body", fmt.Sprintf("%s; the limit of this call is %d", size, limit))
}

// errUnwantedBody refuses a body of a call that takes none.
var errUnwantedBody = asyncflow.InvalidField("body", "must be empty: this call takes none")

// endBody ends a request where its framing says. It drops a short unread rest of the body; if the
// rest is long, the connection is closed after the answer. The connection is also closed after a
// chunked body: fasthttp accepts several forms of its end, and a proxy may read them differently.
// The memory of the body is given back here, before the answer is sent, which may take long.
func endBody(c *fasthttp.RequestCtx) {
	r := &c.Request
	over := !r.IsBodyStream() || !c.Response.ConnectionClose() && dropBody(r, strangersBody)
	if chunked := r.Header.ContentLength() == -1; !over || chunked {
		c.SetConnectionClose()
		if conn, ok := c.Conn().(*listener.Conn); ok {
			conn.Linger()
		}
	}
	r.ResetBody()
}

// dropBody reads and drops up to limit bytes of the rest of a body. It reports whether that was
// all of it.
func dropBody(r *fasthttp.Request, limit int) bool {
	if r.Header.ContentLength() > limit {
		return false
	}
	_, err := io.CopyN(io.Discard, r.BodyStream(), int64(limit)+1)
	if !errors.Is(err, io.EOF) {
		return false
	}
	r.ResetBody() // after its end, the stream would read on into the next request
	return true
}

// cutOff reports whether the client ended the connection before the end of the chunks, which
// fasthttp takes for their end.
func cutOff(c *fasthttp.RequestCtx) bool {
	conn, ok := c.Conn().(*listener.Conn)
	return ok && conn.Ended()
}

// bodyOf returns the body of a request, as far as its call read it.
func bodyOf(c *fiber.Ctx) []byte {
	if c.Request().IsBodyStream() {
		return nil
	}
	return c.Request().Body()
}
