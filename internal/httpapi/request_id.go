package httpapi

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"

	"github.com/gofiber/fiber/v2"
)

// requestIDKey is where a request keeps its id.
type requestIDKey struct{}

// begin is the first that sees a request: it gives it an id and turns a panic, wherever
// it comes from, into an error.
func (s *Server) begin(c *fiber.Ctx) error {
	requestID(c)
	return guarded(c.Next)
}

// requestID returns the id of a request, which the answer has too: the caller's own, if it
// is well formed, else a new one.
func requestID(c *fiber.Ctx) string {
	if id, ok := c.Locals(requestIDKey{}).(string); ok {
		return id
	}
	id := c.Get(fiber.HeaderXRequestID)
	if !wellFormed(id) {
		id = newRequestID()
	}
	c.Locals(requestIDKey{}, id)
	c.Set(fiber.HeaderXRequestID, id)
	return id
}

// newRequestID returns 128 random bits. They are for telling requests apart, and guard
// nothing.
func newRequestID() string {
	var bits [16]byte
	binary.LittleEndian.PutUint64(bits[:], rand.Uint64())
	binary.LittleEndian.PutUint64(bits[8:], rand.Uint64())
	return hex.EncodeToString(bits[:])
}

// maxRequestID is the longest id that is taken from a caller, in bytes. No JWT is as short.
const maxRequestID = 64

// wellFormed tells whether an id can stand in headers, logs and rows as it is.
func wellFormed(id string) bool {
	for _, b := range []byte(id) {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9':
		case b == '-', b == '_', b == '.', b == ':', b == '=', b == '/', b == '+':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}

// panicked is the error of a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guarded calls next and turns its panic into an error.
func guarded(next func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return next()
}

// logFailure writes the one line of a request that was answered with a 5xx: with the
// stack, if it panicked.
func (s *Server) logFailure(c *fiber.Ctx, status int, err error) {
	line := []any{"request_id", requestID(c), "method", c.Method(), "path", c.Path(), "status", status, "error", err}
	if p := new(panicked); errors.As(err, &p) {
		line = append(line, "stack", string(p.stack))
	}
	s.log.Error("request failed", line...)
}
