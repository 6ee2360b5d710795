package asyncflow

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code tells a caller what kind of thing went wrong. The HTTP status of each is
// decided in one place, internal/httpapi.
type Code string

const (
	// the request says something that can't be: see Fields
	CodeInvalid         Code = "invalid_argument"
	CodeUnauthenticated Code = "unauthenticated"   // no credential, or one that doesn't verify
	CodeForbidden       Code = "permission_denied" // verified, but without the scope or the tenant
	// the tenant is suspended or deleted: none of its calls is taken
	CodeSuspended   Code = "tenant_suspended"
	CodeQuota       Code = "quota_exceeded" // it would be over a quota of the tenant: see Quota
	CodeRateLimited Code = "rate_limited"   // over a rate of the tenant; nothing was changed
	CodeNotFound    Code = "not_found"      // nothing of that name or id in this tenant
	CodeConflict    Code = "conflict"       // the thing is in a state that doesn't allow this
	// the idempotency key belongs to a task with another context
	CodeKeyReused   Code = "key_reused"
	CodeTooLarge    Code = "too_large"   // a body, context or batch over its limit
	CodeUnavailable Code = "unavailable" // can't be done now; nothing was changed
	CodeUncertain   Code = "uncertain"   // the database went away: nobody knows whether it was done
	CodeInternal    Code = "internal"    // a fault of ours; details are in the log only
)

// FieldError is one offending field of a request, named by its path in the
// document, such as "stages[1].timeout".
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Error is the one error type that crosses package borders.
type Error struct {
	Code       Code
	Op         string        // the operation and its key arguments, for the log
	Message    string        // for the caller; empty means: say what the code says
	Fields     []FieldError  // the offending fields, when Code is CodeInvalid or CodeTooLarge
	RetryAfter time.Duration // when to try again, if known
	Quota      *QuotaUse     // the quota, when Code is CodeQuota
	Err        error         // the cause, for the log; never shown to a caller
}

// Error returns the whole story, for logs.
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

// Detail returns the sentence that a caller may see: the message, or else the
// offending fields; never the cause.
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
// CodeInternal.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// problems collects the offending fields of a document while it is checked.
type problems struct {
	fields   []FieldError
	tooLarge bool
}

func (p *problems) add(field, format string, args ...any) {
	p.fields = append(p.fields, FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// err returns nil when no field was offending.
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
