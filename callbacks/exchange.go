package callbacks

import (
	"bufio"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// inOneGo is up to how many bytes of a body are written before the answer is read: the
// buffers of both sides' sockets have room for them, even if the worker reads nothing. The
// memory of such a body is used again once the exchange is over.
const inOneGo = 32 << 10

// exchange is one request and its answer on a connection, and the answer's body. It
// ends when the body does, when that fails, or when it is closed; then the connection
// is kept, or closed.
type exchange struct {
	conn    *conn
	idle    *idle
	unwatch func() bool   // ends the watch on the context; false: it has ended before
	sending chan error    // of a large request; nil: it is sent
	unsent  error         // why the request couldn't be sent
	reader  *bufio.Reader // of conn
	body    io.Reader     // through reader; nil: it has ended
	failed  error         // why it has ended, such as io.EOF
	ended   atomic.Bool
}

// run returns the head of the answer to a request, with the exchange for its body.
func (x *exchange) run(req *http.Request) (*http.Response, error) {
	x.send(req)
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
	if resp.Close || resp.StatusCode < 200 { // 101: what follows is no HTTP
		x.conn.last = true
	}
	x.body = resp.Body
	if x.body == http.NoBody {
		x.finish(io.EOF)
	} else {
		resp.Body = x
	}
	return resp, nil
}

// send writes a request, or begins to: a worker may answer before it has read a large
// one, and read no more of it.
func (x *exchange) send(req *http.Request) {
	if req.ContentLength >= 0 && req.ContentLength <= inOneGo {
		x.unsent = x.conn.send(req)
		return
	}
	sending := make(chan error, 1)
	x.sending = sending
	go func() { sending <- x.conn.send(req) }()
}

// sent reports whether the whole request has been sent by now.
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

// Read reads the body of the answer. At its end the connection is free for others.
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
	x.end(err == io.EOF && x.reader.Buffered() == 0 && x.sent() && !x.conn.last)
}

// end is what the reader of the answer ends the exchange with; good reports whether the
// connection may serve another one.
func (x *exchange) end(good bool) {
	if !x.ended.CompareAndSwap(false, true) {
		return
	}
	x.reader.Reset(nil)
	readers.Put(x.reader)
	if x.unwatch() && good && x.conn.settled() {
		x.idle.put(x.conn)
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

// Buffers of connections that have a request under way.
var (
	readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }} // most requests go out in one piece
)
