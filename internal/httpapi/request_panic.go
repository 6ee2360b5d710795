package httpapi

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/gofiber/fiber/v2"
)

// panicked is the error of a handler that panicked.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// recovered calls next and turns its panic into an error.
func recovered(next func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return next()
}

// logFailure writes the one line of a request that was answered with a 5xx, with the stack if the
// request panicked.
func (s *Server) logFailure(c *fiber.Ctx, status int, err error) {
	line := []any{
		"request_id", requestID(c),
		"method", c.Method(),
		"path", c.Path(),
		"status", status,
		"error", err,
	}
	if p := new(panicked); errors.As(err, &p) {
		line = append(line, "stack", string(p.stack))
	}
	s.log.Error("request failed", line...)
}
