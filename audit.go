package asyncflow

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// AuditOrigin says how something was asked for.
type AuditOrigin string

const (
	AuditFromAPI AuditOrigin = "api"
	AuditFromCLI AuditOrigin = "cli" // by the command line, straight in the database
)

// AuditOutcome says what came of it.
type AuditOutcome string

const (
	AuditDone    AuditOutcome = "done"
	AuditRefused AuditOutcome = "refused" // it couldn't be done as it was asked for
	AuditDenied  AuditOutcome = "denied"  // by a caller without a good token, or without the scope
	AuditFailed  AuditOutcome = "failed"  // for a fault that was not the caller's
)

// AuditOutcomeOf returns the outcome of a call by the HTTP status of its answer.
func AuditOutcomeOf(status int) AuditOutcome {
	switch {
	case status >= 500:
		return AuditFailed
	case status == 401 || status == 403:
		return AuditDenied
	case status >= 400:
		return AuditRefused
	}
	return AuditDone
}

// AuditEntry says who did what, from where, and what came of it. What is empty is not
// known, or means nothing here. It never holds a secret, a context or an output.
type AuditEntry struct {
	ID     string    // a UUID
	At     time.Time // when it was written; of several calls, when the first was made
	Origin AuditOrigin

	Tenant  string // of the caller, proven by the token
	Subject string // who: the token's sub; of the command line, user@host
	TokenID string // the token's jti
	Issuer  string // the token's iss
	Scopes  string // the token's, separated by spaces

	Action     string // what was asked for, such as task_type.put; see ActionOf
	ObjectType string
	Object     string // its name or id

	Address   string // of the caller: the connection's, or as told by a trusted proxy
	Proxy     string // the connection's, where a trusted proxy told another
	RequestID string
	UserAgent string

	Outcome AuditOutcome
	Status  int    // of HTTP; 0: none
	Code    string // of the problem
	Detail  map[string]any
	Claimed AuditClaim

	Calls  int64     // how many calls it stands for; at least 1
	LastAt time.Time // of several calls: when the last was made
}

// AuditClaim is what a token says of itself that didn't prove it.
type AuditClaim struct {
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	TokenID string `json:"token_id,omitempty"`
}

// How long what is kept in the audit may be, in bytes.
const (
	MaxAuditText  = 255 // a name, an id, a user agent
	MaxAuditClaim = 100 // what anybody can write
)

// AuditText returns text as it is kept: as one line of UTF-8 without control characters,
// of limit bytes at most.
func AuditText(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
	if len(text) > limit {
		text = strings.Clone(strings.ToValidUTF8(text[:limit], "")) // without the rest in memory
	}
	return text
}

// Bounded returns the entry with its texts as they are kept.
func (e AuditEntry) Bounded() AuditEntry {
	for _, text := range []*string{&e.Tenant, &e.Subject, &e.TokenID, &e.Issuer, &e.Scopes, &e.Action,
		&e.ObjectType, &e.Object,
		&e.Address, &e.Proxy, &e.RequestID, &e.UserAgent, &e.Code} {
		*text = AuditText(*text, MaxAuditText)
	}
	for _, text := range []*string{&e.Claimed.Issuer, &e.Claimed.Subject, &e.Claimed.Tenant,
		&e.Claimed.TokenID} {
		*text = AuditText(*text, MaxAuditClaim)
	}
	return e
}

// AuditAny is the action of an entry that stands for calls of several kinds.
const AuditAny = "call.any"

// ActionOf returns the word of the audit for an operation of openapi.yaml, by its
// operationId, and what kind of thing it is about: putTaskType is task_type.put, about a
// task_type. This is the one place where the words come from; they don't change.
func ActionOf(operationID string) (action, objectType string) {
	var words []string
	start := 0
	for i, r := range operationID {
		if unicode.IsUpper(r) {
			words = append(words, strings.ToLower(operationID[start:i]))
			start = i
		}
	}
	words = append(words, strings.ToLower(operationID[start:]))
	if len(words) == 1 {
		return "call." + words[0], ""
	}
	objectType = strings.Join(words[1:], "_")
	return objectType + "." + words[0], objectType
}

// How long the audit is kept.
const (
	DefaultAuditRetention = 365 * 24 * time.Hour
	// MinAuditRetention is what the database itself keeps, whatever it is told.
	MinAuditRetention = 24 * time.Hour
	MaxAuditRetention = 10 * 365 * 24 * time.Hour
)
