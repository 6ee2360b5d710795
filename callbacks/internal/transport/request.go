package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"
)

// Request is a POST to a worker.
type Request struct {
	// URL is where it goes. It must be one that asyncflow.Egress accepts: the scheme is http or
	// https, and the host is spelt in the one way that every program reads alike.
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

// write writes exactly as much as was announced, and closes the body. Another length is an error.
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

// Header is one header of a request.
type Header struct{ Name, Value string }

// Headers are the headers of a request, in the order in which they are written.
type Headers []Header

// Set adds a header, or replaces the value of the one with that name.
func (h *Headers) Set(name, value string) {
	if i := h.index(name); i >= 0 {
		(*h)[i].Value = value
		return
	}
	*h = append(*h, Header{Name: name, Value: value})
}

// Get returns the value of a header, or "".
func (h Headers) Get(name string) string {
	if i := h.index(name); i >= 0 {
		return h[i].Value
	}
	return ""
}

// index returns the position of the header with a name, or -1.
func (h Headers) index(name string) int {
	return slices.IndexFunc(h, func(one Header) bool { return strings.EqualFold(one.Name, name) })
}

// check returns an error if a header can't be written. Names and values may come from elsewhere:
// from an endpoint's settings, or from a login. An error doesn't show the value, which may be a
// secret.
func (h Headers) check() error {
	for _, one := range h {
		switch {
		case !httpguts.ValidHeaderFieldName(one.Name):
			return fmt.Errorf("invalid header field name %q", one.Name)
		case isFraming(one.Name):
			return fmt.Errorf("the header %s is not for callers to set", one.Name)
		case !httpguts.ValidHeaderFieldValue(one.Value):
			return fmt.Errorf("invalid header field value for %q", one.Name)
		}
	}
	return nil
}

// isFraming reports whether a header says where a request ends, or to which host it goes. Only
// appendHead writes these.
func isFraming(name string) bool {
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
		return true
	}
	return false
}

// Answer is what a worker answered.
type Answer struct {
	Status int
	Header http.Header
	// Body is at most MaxAnswer bytes, and nothing if Status is below 200.
	Body []byte
	// BodyErr is why Body isn't the whole body, such as ErrTooLarge; nil if it is.
	BodyErr error
}

// ErrTooLarge is the error of an answer with a body longer than MaxAnswer.
var ErrTooLarge = errors.New("the answer is too large")

// ContentType returns the header Content-Type.
func (a Answer) ContentType() string { return a.Header.Get("Content-Type") }

// RetryAfter returns the header Retry-After.
func (a Answer) RetryAfter() string { return a.Header.Get("Retry-After") }

// readAnswer reads a response and its body. Of a body that is too large it reads one byte more than
// is allowed.
func readAnswer(r *http.Response, most int) Answer {
	a := Answer{
		Status: r.StatusCode,
		Header: r.Header,
	}
	if r.StatusCode < 200 || r.Body == http.NoBody {
		return a
	}
	a.Body, a.BodyErr = io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	switch {
	case a.BodyErr != nil:
		a.BodyErr = fmt.Errorf("the answer broke off: %w", a.BodyErr)
	case len(a.Body) > most:
		a.Body = a.Body[:most]
		a.BodyErr = fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, most)
	}
	return a
}
