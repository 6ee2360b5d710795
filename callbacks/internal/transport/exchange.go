package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// inOneGo is the largest body, in bytes, that is written before the answer is read. The sockets'
// buffers hold it even if the worker reads nothing.
const inOneGo = 32 << 10

// exchange is one request and its answer on a connection. As an http.RoundTripper it makes that
// exchange and no other; as an io.ReadCloser it is the body of the answer. It ends when the body
// ends, fails or is closed. Then the connection becomes idle, or is closed.
type exchange struct {
	transport *Transport
	request   Request
	to        target
	given     body

	conn    *conn
	unwatch func() bool   // ends the watch on the context; false: the context ended before
	sending chan error    // gets the result of writing a large request; nil: nobody writes
	unsent  error         // why the request couldn't be written
	reader  *bufio.Reader // of conn
	body    io.Reader     // of the answer, through reader; nil: it is over
	failed  error         // why it ended, such as io.EOF
	ended   atomic.Bool
}

func (t *Transport) newExchange(r Request, given body) (*exchange, error) {
	to, err := r.check()
	if err != nil {
		return nil, err
	}
	return &exchange{transport: t, request: r, to: to, given: given}, nil
}

// RoundTrip makes the exchange. Of the http.Request it uses the context only. It returns as soon
// as the head of the answer is there.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := x.connect(ctx); err != nil {
		x.given.close()
		return nil, err
	}
	x.conn.limit(x.request.Deadline)
	x.unwatch = context.AfterFunc(ctx, x.conn.cut)
	resp, err := x.run(req)
	if err != nil {
		if over := x.endError(ctx); over != nil {
			return nil, over
		}
	}
	return resp, err
}

// connect gets a connection to the endpoint, unless the exchange must be over by now.
func (x *exchange) connect(ctx context.Context) (err error) {
	if err = x.endError(ctx); err != nil {
		return err
	}
	x.conn, err = x.transport.connection(ctx, x.request.URL, x.request.Deadline)
	return err
}

// endError returns why the exchange must be over by now, or nil.
func (x *exchange) endError(ctx context.Context) error {
	deadline := x.request.Deadline
	if err := ctx.Err(); err != nil || deadline.IsZero() || time.Now().Before(deadline) {
		return err
	}
	return context.DeadlineExceeded
}

// run writes the request and returns the head of the answer, with the exchange as its body.
func (x *exchange) run(req *http.Request) (*http.Response, error) {
	x.send()
	x.reader = readers.Get().(*bufio.Reader)
	x.reader.Reset(x.conn)
	resp, err := x.conn.readHead(x.reader, req)
	if err != nil {
		if !x.sent() && x.unsent != nil {
			err = x.unsent
		}
		x.end(false)
		return nil, err
	}
	if resp.Close || resp.StatusCode < 200 { // 101: what follows is not HTTP
		x.conn.closing = true
	}
	x.body = resp.Body
	if x.body == http.NoBody {
		x.finish(io.EOF)
	} else {
		resp.Body = x
	}
	return resp, nil
}

// send writes the request. A large one is written in a goroutine of its own: a worker may answer
// before it read the request, and read no more of it.
func (x *exchange) send() {
	if x.given.length <= inOneGo {
		x.unsent = x.conn.send(&x.request, x.to, x.given)
		return
	}
	sending := make(chan error, 1)
	x.sending = sending
	go func() { sending <- x.conn.send(&x.request, x.to, x.given) }()
}

// sent reports whether the whole request is written by now.
func (x *exchange) sent() bool {
	if x.sending != nil {
		select {
		case x.unsent = <-x.sending:
			x.sending = nil
		default:
			return false
		}
	}
	return x.unsent == nil
}

// awaitSender waits until nobody writes the request. Call it after the end of the exchange: a
// connection that is still written to was closed, which ends the writing.
func (x *exchange) awaitSender() {
	if x.sending != nil {
		<-x.sending
	}
}

// Read reads the body of the answer. At its end the connection becomes idle.
func (x *exchange) Read(p []byte) (int, error) {
	if x.failed != nil {
		return 0, x.failed
	}
	n, err := x.body.Read(p)
	if err != nil {
		x.finish(err)
	}
	return n, err
}

func (x *exchange) finish(err error) {
	x.body, x.failed = nil, err
	whole := errors.Is(err, io.EOF) && x.reader.Buffered() == 0
	x.end(whole && x.sent() && !x.conn.closing)
}

// end ends the exchange after its last read. reusable says whether the connection may serve
// another exchange.
func (x *exchange) end(reusable bool) {
	if !x.ended.CompareAndSwap(false, true) {
		return
	}
	x.reader.Reset(nil)
	readers.Put(x.reader)
	if x.unwatch() && reusable && x.conn.settled() {
		x.transport.idle.put(x.conn)
		return
	}
	x.conn.cut()
}

// Close ends the exchange. It may be called while Read runs, which fails then.
func (x *exchange) Close() error {
	if x.ended.CompareAndSwap(false, true) {
		x.unwatch()
		x.conn.cut()
	}
	return nil
}

// readers are the buffers of connections with a request in flight.
var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}
