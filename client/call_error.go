package client

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
)

// Error is an answer of the server that isn't a success. It unwraps to an *asyncflow.Error with the
// same code and fields.
type Error struct {
	Status     int           // of HTTP
	Problem    Problem       // from the server, or made from Status if it sent none
	RetryAfter time.Duration // when to try again; 0: unknown
}

// Error returns the status, the code and the detail, such as
// "400 invalid_argument: priority is -1; it must be 0 to 31536000 seconds (a year)".
func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, e.Problem.Code, e.Detail())
}

// Detail returns the fault in words, without status and code.
func (e *Error) Detail() string {
	if e.Problem.Detail != "" {
		return e.Problem.Detail
	}
	parts := make([]string, 0, len(e.Problem.Errors))
	for _, f := range e.Problem.Errors {
		parts = append(parts, f.Field+" "+f.Message)
	}
	if len(parts) > 0 {
		return strings.Join(parts, "; ")
	}
	return e.Problem.Title
}

// RequestID returns the id that the server logs for the call, for the operator; "" if there is none
// in the answer.
func (e *Error) RequestID() string { return e.Problem.RequestID }

// Unwrap returns the same error as an *asyncflow.Error.
func (e *Error) Unwrap() error {
	known := &asyncflow.Error{
		Code:       asyncflow.Code(e.Problem.Code),
		Fields:     e.Problem.Errors,
		RetryAfter: e.RetryAfter,
	}
	if q := e.Problem.Quota; q.Name != "" {
		known.Quota = &asyncflow.QuotaUse{Name: q.Name, Limit: q.Limit, Used: q.Used}
	}
	if len(known.Fields) == 0 {
		known.Message = e.Detail()
	}
	return known
}

// ConnectionError is the error of a call that got no answer, or none that could be read. It unwraps
// to an *asyncflow.Error of CodeUnavailable, and to its cause.
type ConnectionError struct {
	URL string // the server's
	Err error
}

// Error returns the URL and the cause, such as
// "no answer from http://127.0.0.1:8080: connect: connection refused".
func (e *ConnectionError) Error() string {
	return fmt.Sprintf("no answer from %s: %v", e.URL, innermost(e.Err))
}

// Unwrap returns the cause, wrapped in an *asyncflow.Error.
func (e *ConnectionError) Unwrap() error {
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Op: "client", Err: e.Err}
}

// NotSent reports that the server can't have seen the request: there never was a connection.
// Otherwise a call that changes something may have taken effect.
func (e *ConnectionError) NotSent() bool {
	var op *net.OpError
	return errors.As(e.Err, &op) && op.Op == "dial"
}

// Uncertain reports whether a call that changes something may have taken effect although it
// returned err. It has not if the server refused it or was unavailable, or if the request was never
// sent. Claims and reports of workers are the exception: they may have taken effect even if the
// server was unavailable.
func Uncertain(err error) bool {
	var answer *Error
	var connection *ConnectionError
	var known *asyncflow.Error
	var before uncertainError
	switch {
	case err == nil:
		return false
	case errors.As(err, &before):
		return true
	case errors.As(err, &answer):
		return answer.Problem.Code == string(asyncflow.CodeUncertain) ||
			answer.Status >= 500 && answer.Status != http.StatusServiceUnavailable
	case errors.As(err, &connection):
		return !connection.NotSent()
	}
	return !errors.As(err, &known) // otherwise it was refused before it was sent
}

// innermost removes the method, path and addresses that net/http and net put around a cause.
func innermost(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return err
}

// codeOf returns a code for an answer without one, such as a proxy's.
func codeOf(status int) asyncflow.Code {
	switch status {
	case http.StatusUnauthorized:
		return asyncflow.CodeUnauthenticated
	case http.StatusForbidden:
		return asyncflow.CodeForbidden
	case http.StatusNotFound:
		return asyncflow.CodeNotFound
	case http.StatusConflict:
		return asyncflow.CodeConflict
	case http.StatusPreconditionFailed:
		return asyncflow.CodePrecondition
	case http.StatusGone:
		return asyncflow.CodeDecided
	case http.StatusRequestEntityTooLarge:
		return asyncflow.CodeTooLarge
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return asyncflow.CodeUnavailable
	}
	if status >= 300 && status < 500 {
		return asyncflow.CodeInvalid
	}
	return asyncflow.CodeInternal
}
