package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/asyncflow/asyncflow"
)

// The body of a request is read here, by the call that wants it, once its caller is known.
// Its memory grows with the bytes that have come and is lent from a budget. Whatever is left
// of a body when its call ends would be the next request of the connection, so endBody reads
// it to its end or has the connection closed.

const (
	// headerLimit bounds the header of a request, in bytes.
	headerLimit = 16 << 10

	// readAhead is what the server reads of a body before any handler runs, in bytes. It is
	// the connection's own memory and not part of a budget.
	readAhead = 8 << 10

	// unwantedBody bounds the body of a call that takes none, in bytes: "{}" is let through.
	unwantedBody = 1 << 10

	// reportBody bounds the body of a report without an output, in bytes.
	reportBody = 64 << 10

	// documentBody is what a document may have beside a context of the largest size, in
	// bytes. A context that is larger by less than this is still told so by its field.
	documentBody = 1 << 20

	// strangersBody is how much of a refused body is read, to keep its connection, in bytes;
	// also the largest body that comes with a completion token that has expired.
	strangersBody = 64 << 10

	// bodyHeadroom is how far over the largest limit a body that is too large, or that there
	// is no memory for, is still read and dropped, so that its sender hears why, in bytes. The
	// sender's token is good.
	bodyHeadroom = 16 << 20

	// maxBodyDepth bounds the nesting of a body. What is stored has a lower limit, of
	// which its field is told.
	maxBodyDepth = 1000
)

// bodyLimit returns how large the body of a call may be, in bytes.
func (s *Server) bodyLimit(o *operation) int {
	switch {
	case o.route.Operation.RequestBody == nil:
		return unwantedBody
	case o.id == "submitTasks":
		return s.cfg.MaxBody
	case o.id == "failTask" || o.id == "reportProgress":
		return min(s.cfg.MaxBody, reportBody)
	}
	return min(s.cfg.MaxBody, s.cfg.MaxContext+documentBody)
}

// readBody reads the body of a call whose caller is known. The memory for it is lent until the
// end of the call.
func (s *Server) readBody(c *fiber.Ctx, o *operation, memory *loan) error {
	r := c.Request()
	if !r.IsBodyStream() {
		return nil // there is none
	}
	n, limit := r.Header.ContentLength(), s.bodyLimit(o)
	if n > strangersBody && o.access == accessCompletion {
		if err := completionOf(c.UserContext()).Expired(s.cfg.Store.Clock.Now()); err != nil {
			return err
		}
	}
	switch {
	case n > limit:
		return s.bodyTooLarge(r, o, fmt.Sprintf("is %d bytes", n), limit)
	case n >= 0 && n <= readAhead: // it is all there, in memory of the connection's own
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

// readChunks is readBody for a body of chunks. What comes after them as a trailer is dropped: the
// server would take it for a part of the header, which was judged already.
func (s *Server) readChunks(c *fiber.Ctx, o *operation, limit int, memory *loan) error {
	r := c.Request()
	var header fasthttp.RequestHeader
	r.Header.CopyTo(&header)
	if o.access == accessCompletion && completionOf(c.UserContext()).Expired(s.cfg.Store.Clock.Now()) != nil {
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

// readGrowing reads up to n bytes of a stream into memory that grows by doubling with what has
// come. It returns fewer bytes when the stream ends before.
func readGrowing(stream io.Reader, n int, memory *loan) ([]byte, error) {
	var body []byte
	for len(body) < n {
		if len(body) == cap(body) {
			size := min(max(2*len(body), 2*readAhead), n)
			if err := memory.take(size - cap(body)); err != nil {
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

// bodyFailed returns what a caller is told of a body that couldn't be read. One that there was
// no memory for is read to its end, if that isn't far; else the connection is closed.
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

// bodyTooLarge refuses a body; size says how large it is.
func (s *Server) bodyTooLarge(r *fasthttp.Request, o *operation, size string, limit int) error {
	if o.route.Operation.RequestBody == nil {
		return errUnwantedBody
	}
	dropBody(r, s.cfg.MaxBody+bodyHeadroom)
	return &asyncflow.Error{Code: asyncflow.CodeTooLarge, Fields: []asyncflow.FieldError{
		{Field: "body", Message: fmt.Sprintf("%s; the limit of this call is %d", size, limit)}}}
}

// errUnwantedBody refuses a body of a call that takes none.
var errUnwantedBody = asyncflow.InvalidField("body", "must be empty: this call takes none")

// endBody ends a request where its framing says. A rest of the body that nobody has read is
// dropped when it is small; else the connection is closed, after the answer. It is also closed
// after chunks: the server reads several forms of their end, and another one before it may read
// them differently. The memory of the body is given back before the answer is sent, which may
// take long.
func endBody(c *fasthttp.RequestCtx) {
	r := &c.Request
	over := !r.IsBodyStream() || !c.Response.ConnectionClose() && dropBody(r, strangersBody)
	if chunked := r.Header.ContentLength() == -1; !over || chunked {
		c.SetConnectionClose()
		if g, ok := c.Conn().(*guest); ok {
			g.linger = true
		}
	}
	r.ResetBody()
}

// dropBody reads and drops what is left of a body that nobody wants. It reports whether
// that was all of it: a body that goes on for more than most bytes is left where it is.
func dropBody(r *fasthttp.Request, most int) bool {
	if r.Header.ContentLength() > most {
		return false
	}
	_, err := io.CopyN(io.Discard, r.BodyStream(), int64(most)+1)
	if !errors.Is(err, io.EOF) {
		return false
	}
	r.ResetBody() // a stream that ended must not be asked again: it would read on
	return true
}

// cutOff reports whether the client ended the connection before the end of the chunks. The
// server takes that for their end.
func cutOff(c *fasthttp.RequestCtx) bool {
	g, ok := c.Conn().(*guest)
	return ok && g.ended
}

// bodyOf returns the body of a request, as far as its call has read it.
func bodyOf(c *fiber.Ctx) []byte {
	if c.Request().IsBodyStream() {
		return nil
	}
	return c.Request().Body()
}
