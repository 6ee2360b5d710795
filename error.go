package asyncflow

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the kind of an error, for callers. Package internal/httpapi maps it to an HTTP
// status.
type Code string

const (
	// the request is invalid: see Fields
	CodeInvalid         Code = "invalid_argument"
	CodeUnauthenticated Code = "unauthenticated"   // no credential, or an invalid one
	CodeForbidden       Code = "permission_denied" // verified, but without the scope or the tenant
	// the tenant is suspended or deleted: its calls are refused
	CodeSuspended   Code = "tenant_suspended"
	CodeQuota       Code = "quota_exceeded" // it would be over a quota of the tenant: see Quota
	CodeRateLimited Code = "rate_limited"   // over a rate of the tenant; nothing was changed
	CodeNotFound    Code = "not_found"      // nothing of that name or id in this tenant
	CodeConflict    Code = "conflict"       // the thing is in a state that doesn't allow this
	// the vote on the task is over; a late vote was recorded
	CodeDecided Code = "decided"
	// the thing was changed after the caller read it: see ETag
	CodePrecondition Code = "precondition_failed"
	// the idempotency key belongs to a task with another context
	CodeKeyReused Code = "key_reused"
	// a dependency can't be: it makes a cycle, or names a task that doesn't exist: see Fields
	CodeDependency  Code = "invalid_dependency"
	CodeTaskOver    Code = "task_over"          // the task is over: it takes no signal
	CodeExpired     Code = "expired"            // the lifetime of the task is over
	CodeErased      Code = "task_erased"        // the contents of the task were erased
	CodeNextStage   Code = "invalid_next_stage" // the type doesn't let the task go on like that
	CodeSpawn       Code = "invalid_spawn"      // the type doesn't let an attempt start these tasks
	CodeTooLarge    Code = "too_large"          // a body, context or batch over its limit
	CodeUnavailable Code = "unavailable"        // can't be done now; nothing was changed
	CodeUncertain   Code = "uncertain"          // the database broke off: the result is unknown
	CodeInternal    Code = "internal"           // a fault of asyncflow; details are in the log only
)

// FieldError is one offending field of a request, named by its path in the
// document, such as "stages[1].timeout".
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Error is the error type that crosses package boundaries.
type Error struct {
	Code       Code
	Op         string        // the operation and its key arguments, for the log
	Message    string        // for the caller; empty: a text for the code
	Fields     []FieldError  // the offending fields, when Code is CodeInvalid or CodeTooLarge
	RetryAfter time.Duration // when to try again, if known
	Quota      *QuotaUse     // the quota, when Code is CodeQuota
	ETag       string        // the present one, when Code is CodePrecondition; "": there is nothing
	Err        error         // the cause, for the log; never shown to a caller
}

// Error returns all details, for logs.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op + ": ")
	}
	b.WriteString(e.Detail())
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Detail returns the text that a caller may see: the message, or else the offending fields, and
// never the cause.
func (e *Error) Detail() string {
	if e.Message != "" {
		return e.Message
	}
	parts := make([]string, 0, len(e.Fields))
	for _, f := range e.Fields {
		parts = append(parts, f.Field+" "+f.Message)
	}
	if len(parts) == 0 {
		return string(e.Code)
	}
	return strings.Join(parts, "; ")
}

// Errorf returns an Error of a code with a message for the caller.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// InvalidField returns a CodeInvalid Error about one field.
func InvalidField(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Fields: []FieldError{{Field: field,
		Message: fmt.Sprintf(format, args...)}}}
}

// CodeOf returns the code of err: that of the first Error in its chain, else
// CodeInternal; "" if err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// problems collects the offending fields of a document.
type problems struct {
	fields   []FieldError
	tooLarge bool
}

func (p *problems) add(field, format string, args ...any) {
	p.fields = append(p.fields, FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// err returns nil if there are none.
func (p *problems) err() error {
	if len(p.fields) == 0 {
		return nil
	}
	code := CodeInvalid
	if p.tooLarge {
		code = CodeTooLarge
	}
	return &Error{Code: code, Fields: p.fields}
}
