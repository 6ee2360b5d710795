package transport

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"
)

// Request is a POST to a worker.
type Request struct {
	// URL is where it goes. asyncflow.Egress must have accepted it: the scheme is http or https,
	// and the host is spelt in the one way that every program reads alike.
	URL *url.URL
	// Headers are written in their order.
	Headers Headers
	// Body must not be changed before Post returns.
	Body []byte
	// Deadline is when the exchange must be over, including the body of the answer. Zero: only
	// the context ends it.
	Deadline time.Time
	// MaxAnswer is how many bytes of the answer's body are read.
	MaxAnswer int
}

// target is where a request goes, as the request says it.
type target struct{ host, uri string }

// check returns the target of a request that can be written.
func (r *Request) check() (to target, err error) {
	if to.host, err = httpguts.PunycodeHostPort(r.URL.Host); err != nil {
		return to, err
	}
	to.uri = r.URL.RequestURI()
	switch {
	case !httpguts.ValidHostHeader(to.host) || strings.Contains(to.host, "%"):
		return to, errors.New("the request's host is invalid")
	case strings.ContainsFunc(to.uri, unicode.IsControl):
		return to, errors.New("the request's URL has control characters")
	}
	return to, r.Headers.check()
}

// appendHead appends the request line and the headers of a request that was checked. They are what
// net/http writes, except for the order. Content-Length alone says where the request ends.
func (r *Request) appendHead(b []byte, to target, length int64) []byte {
	b = append(append(append(b, "POST "...), to.uri...), " HTTP/1.1\r\nHost: "...)
	b = append(append(b, to.host...), "\r\n"...)
	if r.Headers.index("User-Agent") < 0 { // some servers refuse requests without one
		b = append(b, "User-Agent: asyncflow\r\n"...)
	}
	for _, h := range r.Headers {
		b = append(append(append(append(b, h.Name...), ": "...), h.Value...), "\r\n"...)
	}
	b = strconv.AppendInt(append(b, "Content-Length: "...), length, 10)
	return append(b, "\r\n\r\n"...)
}

// body is the body of a request, with the length that is announced.
type body struct {
	io.Reader
	length int64
	closer io.Closer // nil: nothing is to be closed
}

func (b body) close() {
	if b.closer != nil {
		b.closer.Close()
	}
}

// write writes exactly as much as was announced, and closes the body. If it has another length,
// that is an error.
func (b body) write(w io.Writer) error {
	defer b.close()
	n, err := io.Copy(w, io.LimitReader(b, b.length))
	if err != nil {
		return err
	}
	more, err := io.Copy(io.Discard, b)
	if err == nil && n+more != b.length {
		err = fmt.Errorf("the request has Content-Length %d with Body length %d", b.length, n+more)
	}
	return err
}
