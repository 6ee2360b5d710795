package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Answer is what a worker answered.
type Answer struct {
	Status int
	Header http.Header
	// Body has at most MaxAnswer bytes, and nothing if Status is below 200.
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

// readAnswer reads a response and its body. Of a body that is too large it reads one byte more
// than it may have.
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
