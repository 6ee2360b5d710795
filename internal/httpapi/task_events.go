package httpapi

import (
	"bytes"
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

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
	stream, err := s.newTaskStream(principalOf(ctx), id, after, r.Params.Outputs)
	if err != nil {
		return nil, err
	}
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

// taskStream is the stream of a task. It ends with the task.
type taskStream struct {
	*eventStream
	task    asyncflow.TaskID
	seq     int  // of the last attempt sent
	outputs bool // the client asked for long outputs too
	behind  bool // there are more rows after seq in the journal
	slow    bool // the task is read only so often: see slowPause

	changed <-chan struct{}
	shown   []byte    // the last task event
	looked  time.Time // when the task was last read from the database
}

func (s *Server) newTaskStream(
	p auth.Principal, id asyncflow.TaskID, after int, outputs bool,
) (*taskStream, error) {
	changed, unfollow := s.cfg.Store.Follow(p.Tenant, id)
	stream, err := s.newStream(p, unfollow)
	if err != nil {
		unfollow()
		return nil, err
	}
	e := &taskStream{eventStream: stream, task: id, seq: after, outputs: outputs, changed: changed}
	stream.wait = e.waitForTask
	return e, nil
}

// VisitTaskEventsResponse begins the answer.
func (e *taskStream) VisitTaskEventsResponse(c *fiber.Ctx) error { return e.begin(c, e) }

// waitForTask waits until the task changes here, or may be changed on another node, and reads it.
func (e *taskStream) waitForTask() {
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
	if e.slow && !sleep.For(e.ctx, slowPause-time.Since(e.looked)) {
		e.ended = true
		return
	}
	e.readAgain()
}

// slowPause is the least time between two reads of a task that waits for its children, as it may
// hear of each of them, or whose path is long, as each read counts its visits.
const slowPause = 200 * time.Millisecond

// readAgain reads within the time of a request. An error ends the stream: the client connects
// again and gets the error as its answer.
func (e *taskStream) readAgain() {
	ctx, cancel := context.WithTimeout(e.ctx, requestTime)
	defer cancel()
	if err := e.read(ctx); err != nil {
		e.ended = true
	}
}

// There are many streams, so each keeps little in memory at a time.
const (
	streamRows  = 100      // attempts
	streamBytes = 64 << 10 // about as many bytes of their outputs
)

// read reads the task and adds the events for what is new: of a long journal, one page.
func (e *taskStream) read(ctx context.Context) error {
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
	e.behind = more
	e.slow = task.WaitsFor == asyncflow.WaitChildren || task.Steps > len(task.Path)
	e.looked = time.Now()
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
