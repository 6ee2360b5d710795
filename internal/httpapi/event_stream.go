package httpapi

import (
	"cmp"
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow/auth"
)

// StreamConfig bounds the event streams of a node, and the calls that wait for the end of a task:
// both follow a task. Zero values are the defaults.
type StreamConfig struct {
	Max          int           // streams and waiting calls at once; 0: 2,000
	MaxPerTenant int           // of one tenant; 0: a quarter of Max
	Longest      time.Duration // of a stream: then the client connects again; 0: an hour
	KeepAlive    time.Duration // between two signs of life of a stream; 0: 15 s
}

// defaultMaxStreams is the default of StreamConfig.Max.
const defaultMaxStreams = 2000

func (c StreamConfig) withDefaults() StreamConfig {
	c.Max = cmp.Or(c.Max, defaultMaxStreams)
	c.MaxPerTenant = cmp.Or(c.MaxPerTenant, max(1, c.Max/4))
	c.Longest = cmp.Or(c.Longest, time.Hour)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	return c
}

// eventStream is the body of an answer that lasts until there is nothing more to tell. The server
// reads it and writes at once what it gets to the connection. The server closes it at its end, or
// when a write fails: that is the only sign of a client that is gone, so the keep-alive provokes
// it.
type eventStream struct {
	server *Server
	tenant string
	wait   func() // waits for something new, and adds it or ends the stream

	ctx     context.Context // its own: the request's ends with the handler
	release func()          // ends ctx and gives the slot in the pool back
	conn    net.Conn

	pending []byte    // to be read
	written time.Time // when something was last read from the stream
	// silence is the longest time without a sign of life. It begins short, so that clients that
	// come and go don't hold slots, and doubles.
	silence time.Duration
	ended   bool // nothing follows pending
}

// newStream takes a slot in the pool for a stream of a caller. released is called at its end.
func (s *Server) newStream(p auth.Principal, released func()) (*eventStream, error) {
	if err := s.streams.Take(p.Tenant, 1); err != nil {
		return nil, err
	}
	longest := min(s.cfg.Streams.Longest, time.Until(p.ExpiresAt))
	followed, end := s.cfg.Verifier.FollowToken(s.stopping, p)
	ctx, cancel := context.WithTimeout(followed, longest)
	release := sync.OnceFunc(func() {
		released()
		cancel()
		end()
		s.streams.Give(p.Tenant, 1)
	})
	return &eventStream{server: s, tenant: p.Tenant, ctx: ctx, release: release,
		silence: min(time.Second, s.cfg.Streams.KeepAlive)}, nil
}

// begin begins the answer.
func (e *eventStream) begin(c *fiber.Ctx, body io.ReadCloser) error {
	c.Set(fiber.HeaderContentType, "text/event-stream")
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set("X-Accel-Buffering", "no") // else nginx would buffer the events
	if c.Method() == fiber.MethodHead {
		// Even then the server would send the end of a stream, and break the connection.
		return e.Close()
	}
	e.conn = c.Context().Conn()
	c.Context().SetBodyStream(body, -1)
	return nil
}

// Read returns the next bytes of the stream when there are some. Each time it gives the
// connection the whole time of a write again.
func (e *eventStream) Read(p []byte) (int, error) {
	for len(e.pending) == 0 && !e.ended {
		e.wait()
		if len(e.pending) == 0 && time.Since(e.written) >= e.silence {
			e.pending = []byte(":\n\n")
			e.silence = min(2*e.silence, e.server.cfg.Streams.KeepAlive)
		}
	}
	deadline := time.Now().Add(e.server.cfg.WriteTimeout)
	if err := e.conn.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	if len(e.pending) == 0 {
		return 0, io.EOF
	}
	n := copy(p, e.pending)
	e.pending = e.pending[n:]
	e.written = time.Now()
	if len(e.pending) == 0 {
		e.pending = nil // its array may be large
	}
	return n, nil
}

// Close ends the stream.
func (e *eventStream) Close() error {
	e.release()
	return nil
}

// add adds an event. doc is one line, including its line feed.
func (e *eventStream) add(head string, doc []byte) {
	begin := len(e.pending)
	e.pending = append(append(append(e.pending, head...), doc...), '\n')
	if InspectEvent != nil {
		InspectEvent(e.pending[begin:])
	}
}
