package callbacks

import (
	"bufio"
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"
)

const (
	maxHeaderBytes = 64 << 10
	// lastWords is how long an answer is waited for when a request can't be sent: a
	// worker that closes its side early may have said why.
	lastWords = time.Second
)

// address is where connections lead, and whose they are: those of one transport serve no other.
type address struct {
	via      *transport
	secure   bool
	hostPort string
}

// addressOf returns the address of a URL that Egress has nothing against: its scheme is
// http or https, and its host is spelt in the one way that everybody reads alike.
func (t *transport) addressOf(u *url.URL) address {
	a := address{via: t, secure: u.Scheme == "https", hostPort: u.Host}
	switch {
	case u.Port() != "":
	case a.secure:
		a.hostPort = net.JoinHostPort(u.Hostname(), "443")
	default:
		a.hostPort = net.JoinHostPort(u.Hostname(), "80")
	}
	return a
}

// conn is a connection to a worker. One exchange at a time has it.
type conn struct {
	net.Conn
	raw    net.Conn // the socket, below TLS
	to     address
	silent func() bool // reports whether the socket is open and has nothing to read
	until  time.Time   // when the exchange must be over; zero: it has no limit of its own
	room   int64       // how many bytes may still be read
	last   bool        // no other exchange may follow

	since time.Time     // when it was put down
	place *list.Element // in idle.all
}

func newConn(to address, raw, c net.Conn) *conn {
	return &conn{Conn: c, raw: raw, to: to, silent: silence(raw)}
}

// cut closes the connection at once, whatever is under way on it. It never closes TLS first: the
// words of farewell may wait for a worker that doesn't read.
func (c *conn) cut() { c.raw.Close() }

// limit says until when the exchange that begins may last; zero: it has no limit of its own.
func (c *conn) limit(until time.Time) {
	c.until = until
	c.SetDeadline(until)
}

// settled reports whether nothing is left of what TLS has read: the rest of one answer must not
// begin the next. It can't block, because it neither reads from the socket nor writes to it. Where
// TLS owes the worker something, such as the answer to a KeyUpdate, the connection isn't settled.
func (c *conn) settled() bool {
	if c.Conn == c.raw {
		return true
	}
	c.SetDeadline(time.Unix(1, 0)) // the socket refuses both directions
	_, err := c.Conn.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	_, err = c.Conn.Write(nil) // nothing is written: it reports what TLS couldn't write
	return err == nil
}

var errHeaders = fmt.Errorf("server response headers exceeded %d bytes", maxHeaderBytes)

// Read reads as much as there is room for.
func (c *conn) Read(p []byte) (int, error) {
	if c.room <= 0 {
		return 0, errHeaders
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.room)])
	c.room -= int64(n)
	if err != nil {
		c.last = true // what came before may still be a whole answer
	}
	return n, err
}

// ReadFrom writes what r gives in larger pieces than those of a buffer.
func (c *conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(c.Conn, r) }

// send writes a request. If that fails, the worker has little time left to say why.
func (c *conn) send(req *http.Request) error {
	w := writers.Get().(*bufio.Writer)
	defer writers.Put(w)
	w.Reset(c)
	defer w.Reset(nil)
	err := writeRequest(w, req)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		c.raw.SetReadDeadline(c.earlier(time.Now().Add(lastWords)))
	}
	return err
}

// earlier returns a point in time, or when the exchange must be over, if that is earlier.
func (c *conn) earlier(at time.Time) time.Time {
	if !c.until.IsZero() && c.until.Before(at) {
		return c.until
	}
	return at
}

// writeRequest writes a request as net/http does, which sorts headers first and looks for
// what can't be here: where it ends is told by Content-Length alone, and no more than that
// many bytes of the body are written. Names of hosts are as Egress wants them.
func writeRequest(w *bufio.Writer, req *http.Request) error {
	if req.Body != nil {
		defer req.Body.Close()
	}
	host, err := httpguts.PunycodeHostPort(cmp.Or(req.Host, req.URL.Host))
	if err != nil {
		return err
	}
	uri := req.URL.RequestURI()
	switch {
	case !httpguts.ValidHostHeader(host) || strings.Contains(host, "%"):
		return errors.New("the request's host is invalid")
	case strings.ContainsFunc(uri, unicode.IsControl):
		return errors.New("the request's URL has control characters")
	case req.ContentLength < 0:
		return errors.New("the length of the request's body isn't known")
	}
	b := append(append(append(w.AvailableBuffer(), req.Method...), ' '), uri...)
	b = append(append(append(b, " HTTP/1.1\r\nHost: "...), host...), "\r\n"...)
	all := headersOf(req)
	if all.index("User-Agent") < 0 { // some servers refuse requests without one
		b = append(b, "User-Agent: asyncflow\r\n"...)
	}
	for _, h := range all {
		b = append(append(append(append(b, h.Name...), ": "...), h.Value...), "\r\n"...)
	}
	b = strconv.AppendInt(append(b, "Content-Length: "...), req.ContentLength, 10)
	if _, err := w.Write(append(b, "\r\n\r\n"...)); err != nil || req.Body == nil {
		return err
	}
	return writeBody(w, req)
}

// writeBody writes as much of a body as was announced. If it has another length, it fails.
func writeBody(w *bufio.Writer, req *http.Request) error {
	n, err := io.Copy(w, io.LimitReader(req.Body, req.ContentLength))
	if err != nil {
		return err
	}
	more, err := io.Copy(io.Discard, req.Body)
	if err == nil && n+more != req.ContentLength {
		err = fmt.Errorf("the request has Content-Length %d with Body length %d", req.ContentLength, n+more)
	}
	return err
}

// readHead reads the head of the answer to a request. What comes before it, such as
// "100 Continue", counts into its limit.
func (c *conn) readHead(r *bufio.Reader, req *http.Request) (*http.Response, error) {
	c.room = maxHeaderBytes
	for {
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			return nil, err
		}
		if code := resp.StatusCode; code < 100 || code > 199 || code == http.StatusSwitchingProtocols {
			c.room = math.MaxInt64
			return resp, nil
		}
	}
}
