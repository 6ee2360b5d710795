package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/store"
)

// StreamConfig bounds the event streams of a node, and the calls that wait for the end of a task:
// both follow a task. Zero values are the defaults.
type StreamConfig struct {
	Max          int           // streams and waiting calls at once; 0: 2,000
	MaxPerTenant int           // of one tenant; 0: a quarter of Max
	Longest      time.Duration // of a stream: then the client connects again; 0: an hour
	KeepAlive    time.Duration // between two signs of life of a stream; 0: 15 s
}

// DefaultMaxStreams is the default of StreamConfig.Max.
const DefaultMaxStreams = 2000

func (c StreamConfig) withDefaults() StreamConfig {
	c.Max = cmp.Or(c.Max, DefaultMaxStreams)
	c.MaxPerTenant = cmp.Or(c.MaxPerTenant, max(1, c.Max/4))
	c.Longest = cmp.Or(c.Longest, time.Hour)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	return c
}

// TaskEvents follows a task: it streams the rows of the task's journal, and the task's state.
func (s *Server) TaskEvents(
	ctx context.Context, r TaskEventsRequestObject,
) (TaskEventsResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	after, err := readEventID(r.Params.LastEventID)
	if err != nil {
		return nil, err
	}
	if err := s.streams.Take(principalOf(ctx).Tenant, 1); err != nil {
		return nil, err
	}
	stream := s.newStream(principalOf(ctx), id, after)
	stream.outputs = r.Params.Outputs
	if err := stream.read(ctx); err != nil { // the answer can still be an error
		stream.Close()
		return nil, err
	}
	return stream, nil
}

// readEventID parses the seq after which a stream continues; "" is the beginning.
func readEventID(text string) (int, error) {
	seq, err := readSeq(text)
	if err != nil {
		return 0, asyncflow.InvalidField("Last-Event-ID",
			"is %q; it must be the id of an event: 0 to %d", text, maxSeq)
	}
	return seq, nil
}

// eventStream is the body of an answer that lasts as long as its task. The server reads it and
// writes at once what it gets to the connection. The server closes it at its end, or when a write
// fails: that is the only sign of a client that is gone, so the keep-alive provokes it.
type eventStream struct {
	server  *Server
	tenant  string
	task    asyncflow.TaskID
	seq     int  // of the last attempt sent
	outputs bool // the client asked for long outputs too
	behind  bool // the journal has more rows after seq
	parent  bool // the task waits for its children

	ctx     context.Context // its own: the request's ends with the handler
	release func()          // ends ctx and gives the place in the pool back
	changed <-chan struct{}
	conn    net.Conn

	pending []byte    // to be read
	shown   []byte    // the last task event
	looked  time.Time // when the task was last read from the database
	written time.Time // when something was last read from the stream
	ended   bool      // nothing follows pending
}

func (s *Server) newStream(p auth.Principal, id asyncflow.TaskID, after int) *eventStream {
	longest := min(s.cfg.Streams.Longest, time.Until(p.ExpiresAt))
	ctx, cancel := context.WithTimeout(s.stopping, longest)
	changed, unfollow := s.cfg.Store.Follow(p.Tenant, id)
	release := sync.OnceFunc(func() {
		unfollow()
		cancel()
		s.streams.Give(p.Tenant, 1)
	})
	return &eventStream{
		server:  s,
		tenant:  p.Tenant,
		task:    id,
		seq:     after,
		ctx:     ctx,
		changed: changed,
		release: release,
	}
}

// VisitTaskEventsResponse begins the answer.
func (e *eventStream) VisitTaskEventsResponse(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, "text/event-stream")
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set("X-Accel-Buffering", "no") // else nginx would buffer the events
	if c.Method() == fiber.MethodHead {
		// Even then the server would send the end of a stream, and break the connection.
		return e.Close()
	}
	e.conn = c.Context().Conn()
	c.Context().SetBodyStream(e, -1)
	return nil
}

// Read returns the next bytes of the stream when there are some. Each time it gives the
// connection the whole time of a write again.
func (e *eventStream) Read(p []byte) (int, error) {
	for len(e.pending) == 0 && !e.ended {
		e.wait()
	}
	deadline := time.Now().Add(e.server.cfg.WriteTimeout)
	if err := e.conn.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	if len(e.pending) == 0 {
		return 0, io.EOF
	}
	n := copy(p, e.pending)
	e.pending, e.written = e.pending[n:], time.Now()
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

// wait waits until the task has changed here, or may have changed on another node, and reads it.
func (e *eventStream) wait() {
	if e.behind {
		e.readAgain()
		return
	}
	poll := time.NewTimer(e.server.cfg.Store.WatchPause())
	defer poll.Stop()
	select {
	case <-e.ctx.Done():
		e.ended = true
		return
	case <-e.changed:
	case <-poll.C:
	}
	if e.parent && !e.pause(childrenPause-time.Since(e.looked)) {
		e.ended = true
		return
	}
	e.readAgain()
	if len(e.pending) == 0 && time.Since(e.written) >= e.server.cfg.Streams.KeepAlive {
		e.pending = []byte(":\n\n")
	}
}

// childrenPause is the least time between two reads of a task that waits for its children: it may
// hear of each of them.
const childrenPause = 200 * time.Millisecond

// pause waits for a time, and reports whether the stream goes on.
func (e *eventStream) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.ctx.Done():
		return false
	}
}

// readAgain reads within the time of a request. An error ends the stream: the client connects
// again and gets the error as its answer.
func (e *eventStream) readAgain() {
	ctx, cancel := context.WithTimeout(e.ctx, requestTime)
	defer cancel()
	if err := e.read(ctx); err != nil {
		e.ended = true
	}
}

// There are many streams, so each has little in memory at a time.
const (
	streamRows  = 100      // attempts
	streamBytes = 64 << 10 // about as many bytes of their outputs
)

// read reads the task and adds the events for what is new: of a long journal, one page.
func (e *eventStream) read(ctx context.Context) error {
	if t, ok := e.server.cfg.Store.Catalog.Tenant(e.tenant); ok && t.Suspended {
		return t.Refusal()
	}
	page := store.AttemptPage{
		After:   e.seq,
		Limit:   streamRows,
		Bytes:   streamBytes,
		Outputs: e.outputs,
	}
	task, attempts, more, err := e.server.cfg.Store.Watch(ctx, e.tenant, e.task, page)
	if err != nil {
		return err
	}
	e.behind, e.parent, e.looked = more, task.WaitsFor == asyncflow.WaitChildren, time.Now()
	for _, a := range attempts {
		doc, err := encode(attemptOut(a))
		if err != nil {
			return err
		}
		e.seq = a.Seq
		e.add("event: attempt\nid: "+strconv.Itoa(a.Seq)+"\ndata: ", doc)
	}
	if more {
		return nil
	}
	doc, err := encode(e.server.taskOut(e.tenant, task))
	if err != nil {
		return err
	}
	if !bytes.Equal(doc, e.shown) {
		e.shown = doc
		e.add("event: task\ndata: ", doc)
	}
	e.ended = task.Status.Final()
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
