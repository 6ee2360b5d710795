package httpapi

import (
	"bytes"
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

// StreamConfig bounds the event streams of a node, and the calls that wait for the end of a
// task: one and the other follow a task. Zero values are the defaults.
type StreamConfig struct {
	Max          int           // streams and waiting calls at once; 0: 2,000
	MaxPerTenant int           // of one tenant; 0: a quarter of Max
	Longest      time.Duration // of a stream: after it a client connects again; 0: an hour
	KeepAlive    time.Duration // between two signs of life of a stream; 0: 15 s
}

// DefaultMaxStreams is how many streams and waiting calls a node has at once unless configured.
const DefaultMaxStreams = 2000

func (c StreamConfig) withDefaults() StreamConfig {
	if c.Max == 0 {
		c.Max = DefaultMaxStreams
	}
	if c.MaxPerTenant == 0 {
		c.MaxPerTenant = max(1, c.Max/4)
	}
	if c.Longest == 0 {
		c.Longest = time.Hour
	}
	if c.KeepAlive == 0 {
		c.KeepAlive = 15 * time.Second
	}
	return c
}

// TaskEvents follows a task: the rows of its journal, and how it stands.
func (s *Server) TaskEvents(ctx context.Context, r TaskEventsRequestObject) (TaskEventsResponseObject, error) {
	id, err := asyncflow.ParseTaskID(r.ID)
	if err != nil {
		return nil, err
	}
	after, err := readEventID(r.Params.LastEventID)
	if err != nil {
		return nil, err
	}
	if err := s.streams.take(principalOf(ctx).Tenant, 1); err != nil {
		return nil, err
	}
	stream := s.newStream(principalOf(ctx), id, after)
	stream.outputs = r.Params.Outputs
	if err := stream.look(ctx); err != nil { // while it can still be said
		stream.Close()
		return nil, err
	}
	return stream, nil
}

// maxSeq is the largest seq of a journal row.
const maxSeq = 1<<15 - 1

// readEventID reads the seq after which a stream goes on; "" is the beginning.
func readEventID(text string) (int, error) {
	seq, err := readSeq(text)
	if err != nil {
		return 0, asyncflow.InvalidField("Last-Event-ID", "is %q; it must be the id of an event: 0 to %d",
			text, maxSeq)
	}
	return seq, nil
}

// readSeq reads the seq of a journal row; "" is 0.
func readSeq(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(text, 10, 31)
	if err == nil && seq > maxSeq {
		err = strconv.ErrRange
	}
	return int(seq), err
}

// eventStream is the body of an answer that goes on for as long as its task does.
// The server reads it and writes what it gets to the connection at once; it closes
// it at the end, or when a write fails: it doesn't hear otherwise of a client that
// is gone, so that the keep-alive finds it out.
type eventStream struct {
	server  *Server
	tenant  string
	task    asyncflow.TaskID
	seq     int  // of the last attempt sent
	outputs bool // those that are long are asked for
	behind  bool // the journal has more after seq already

	ctx     context.Context // its own: that of the request ends with the handler
	release func()          // ends ctx, and gives its place back
	moved   <-chan struct{}
	conn    net.Conn

	pending []byte    // not read yet
	shown   []byte    // the last task event
	written time.Time // when there was something to read last
	ended   bool      // there is no more after pending
}

func (s *Server) newStream(p auth.Principal, id asyncflow.TaskID, after int) *eventStream {
	ctx, cancel := context.WithTimeout(s.stopping, min(s.cfg.Streams.Longest, time.Until(p.ExpiresAt)))
	moved, unfollow := s.cfg.Store.Follow(p.Tenant, id)
	return &eventStream{server: s, tenant: p.Tenant, task: id, seq: after, ctx: ctx, moved: moved, release: sync.OnceFunc(func() {
		unfollow()
		cancel()
		s.streams.give(p.Tenant, 1)
	})}
}

// VisitTaskEventsResponse begins the answer.
func (e *eventStream) VisitTaskEventsResponse(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, "text/event-stream")
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set("X-Accel-Buffering", "no")    // nginx would keep it back
	if c.Method() == fiber.MethodHead { // the end of a stream would be sent even then, and break the connection
		return e.Close()
	}
	e.conn = c.Context().Conn()
	c.Context().SetBodyStream(e, -1)
	return nil
}

// Read returns the next bytes of the stream when there are some. Each time, the
// connection has the whole time for a write again.
func (e *eventStream) Read(p []byte) (int, error) {
	for len(e.pending) == 0 && !e.ended {
		e.wait()
	}
	if err := e.conn.SetWriteDeadline(time.Now().Add(e.server.cfg.WriteTimeout)); err != nil {
		return 0, err
	}
	if len(e.pending) == 0 {
		return 0, io.EOF
	}
	n := copy(p, e.pending)
	e.pending, e.written = e.pending[n:], time.Now()
	if len(e.pending) == 0 {
		e.pending = nil // it may have been large
	}
	return n, nil
}

// Close ends the stream.
func (e *eventStream) Close() error {
	e.release()
	return nil
}

// wait looks at the task when it has moved on, or might have on another node. An
// error ends the stream: the client connects again, and is told then.
func (e *eventStream) wait() {
	if e.behind {
		e.lookAgain()
		return
	}
	poll := time.NewTimer(e.server.cfg.Store.WatchPause())
	defer poll.Stop()
	select {
	case <-e.ctx.Done():
		e.ended = true
		return
	case <-e.moved:
	case <-poll.C:
	}
	e.lookAgain()
	if len(e.pending) == 0 && time.Since(e.written) >= e.server.cfg.Streams.KeepAlive {
		e.pending = []byte(":\n\n")
	}
}

// lookAgain looks within the time of a request.
func (e *eventStream) lookAgain() {
	ctx, cancel := context.WithTimeout(e.ctx, requestTime)
	defer cancel()
	if err := e.look(ctx); err != nil {
		e.ended = true
	}
}

// streamRows is the most attempts that a stream has in memory, streamBytes about how many
// bytes of their outputs: there are many streams.
const (
	streamRows  = 100
	streamBytes = 64 << 10
)

// look reads the task and adds the events that follow from what is new. Of a journal that is
// long it adds a page.
func (e *eventStream) look(ctx context.Context) error {
	if t, ok := e.server.cfg.Store.Catalog.Tenant(e.tenant); ok && t.Suspended {
		return t.Refusal()
	}
	task, attempts, more, err := e.server.cfg.Store.Watch(ctx, e.tenant, e.task,
		store.AttemptPage{After: e.seq, Limit: streamRows, Bytes: streamBytes, Outputs: e.outputs})
	if err != nil {
		return err
	}
	e.behind = more
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

// add adds an event. doc is one line, with its end.
func (e *eventStream) add(head string, doc []byte) {
	begin := len(e.pending)
	e.pending = append(append(append(e.pending, head...), doc...), '\n')
	if InspectEvent != nil {
		InspectEvent(e.pending[begin:])
	}
}
