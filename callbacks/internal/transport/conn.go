package transport

import (
	"bufio"
	"container/list"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	// maxHeaderBytes bounds the head of an answer, and what comes before it.
	maxHeaderBytes = 64 << 10
	// lastWords is how long an answer is awaited when the request can't be written: a worker
	// that closes its side early may have said why.
	lastWords = time.Second
)

// conn is a connection to a worker. It serves one exchange at a time.
type conn struct {
	net.Conn
	socket   net.Conn // below TLS
	to       address
	quiet    func() bool // reports whether the socket is open and there is nothing to read
	deadline time.Time   // of the exchange; zero: none
	budget   int64       // how many bytes may still be read
	closing  bool        // no other exchange may follow

	since   time.Time     // when it became idle
	element *list.Element // in Idle.all
}

func newConn(to address, socket, c net.Conn) *conn {
	return &conn{Conn: c, socket: socket, to: to, quiet: peeker(socket)}
}

// cut closes the connection at once, whatever is in flight on it. It closes the socket, not TLS:
// TLS would write a farewell first, and wait for a worker that doesn't read.
func (c *conn) cut() { c.socket.Close() }

// limit sets the deadline of the exchange that begins; zero: none.
func (c *conn) limit(deadline time.Time) {
	c.deadline = deadline
	c.SetDeadline(deadline)
}

// settled reports whether TLS holds nothing back: neither bytes that it read ahead, which would
// begin the next answer, nor something to be written, such as the answer to a KeyUpdate. It can't
// block: the socket refuses to be read or written meanwhile.
func (c *conn) settled() bool {
	if c.Conn == c.socket {
		return true
	}
	c.SetDeadline(time.Unix(1, 0))
	_, err := c.Conn.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	_, err = c.Conn.Write(nil) // writes nothing, but returns the error of an earlier write
	return err == nil
}

var errHeaders = fmt.Errorf("server response headers exceeded %d bytes", maxHeaderBytes)

// Read reads at most as much as the budget allows.
func (c *conn) Read(p []byte) (int, error) {
	if c.budget <= 0 {
		return 0, errHeaders
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.budget)])
	c.budget -= int64(n)
	if err != nil {
		c.closing = true // what came before may still be a whole answer
	}
	return n, err
}

// ReadFrom writes a body in larger pieces than a buffer's.
func (c *conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// send writes a request. If that fails, the worker gets lastWords to say why.
func (c *conn) send(r *Request, to target, given body) error {
	err := c.write(r, to, given)
	if err != nil {
		c.socket.SetReadDeadline(c.earlier(time.Now().Add(lastWords)))
	}
	return err
}

func (c *conn) write(r *Request, to target, given body) error {
	w := writers.Get().(*bufio.Writer)
	defer writers.Put(w)
	w.Reset(c)
	defer w.Reset(nil)
	if _, err := w.Write(r.appendHead(w.AvailableBuffer(), to, given.length)); err != nil {
		return err
	}
	if err := given.write(w); err != nil {
		return err
	}
	return w.Flush()
}

// writers are buffers of a size that lets most requests go out in one piece.
var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }}

// earlier returns a time, or the deadline of the exchange if that is earlier.
func (c *conn) earlier(at time.Time) time.Time {
	if !c.deadline.IsZero() && c.deadline.Before(at) {
		return c.deadline
	}
	return at
}

// readHead reads the head of the answer to a request. Interim answers before it, such as
// "100 Continue", count towards the same limit.
func (c *conn) readHead(r *bufio.Reader, req *http.Request) (*http.Response, error) {
	c.budget = maxHeaderBytes
	for {
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			return nil, err
		}
		code := resp.StatusCode
		if code < 100 || code > 199 || code == http.StatusSwitchingProtocols {
			c.budget = math.MaxInt64
			return resp, nil
		}
	}
}
