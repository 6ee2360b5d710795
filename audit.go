package asyncflow

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// AuditOrigin is the way in which a call came.
type AuditOrigin string

const (
	AuditFromAPI  AuditOrigin = "api"
	AuditFromCLI  AuditOrigin = "cli"  // a command, directly in the database
	AuditFromNode AuditOrigin = "node" // a background job, which corrected something by itself
)

// AuditOutcome is the outcome of a call.
type AuditOutcome string

const (
	AuditDone    AuditOutcome = "done"
	AuditRefused AuditOutcome = "refused" // the request couldn't be done as it was
	AuditDenied  AuditOutcome = "denied"  // the caller had no valid token, or lacked the scope
	AuditFailed  AuditOutcome = "failed"  // it failed, and not because of the caller
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

// AuditEntry records who did what, from where, and with which outcome. An empty field is
// unknown or doesn't apply. An entry never holds a secret, a context or an output.
type AuditEntry struct {
	ID     string    // a UUID
	At     time.Time // of the entry; of several calls, the time of the first
	Origin AuditOrigin

	Tenant  string // of the caller, as the verified token says
	Subject string // the token's sub; for a command, user@host; for a job, the node
	TokenID string // the token's jti
	Issuer  string // the token's iss
	Scopes  string // the token's, separated by spaces

	Action     string // such as task_type.put; see ActionOf
	ObjectType string
	Object     string // its name or id

	Address   string // of the caller: the connection's, or the one that a trusted proxy gives
	Proxy     string // the connection's address, if a trusted proxy gave another
	RequestID string
	UserAgent string

	Outcome AuditOutcome
	Status  int            // of HTTP; 0: none
	Code    string         // of the problem
	Detail  map[string]any // numbers that were stored are json.Number
	Claimed AuditClaim

	Calls  int64     // number of calls that it stands for; at least 1
	LastAt time.Time // of several calls: the time of the last
}

// AuditClaim is what an unverified token claims.
type AuditClaim struct {
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	TokenID string `json:"token_id,omitempty"`
}

// Limits of texts in the audit, in bytes.
const (
	MaxAuditText  = 255 // a name, an id, a user agent
	MaxAuditClaim = 100 // what anybody can send
)

// AuditText returns a text for the audit: one line of UTF-8 without control characters, at most
// limit bytes.
func AuditText(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, text)
	if len(text) > limit {
		text = strings.Clone(strings.ToValidUTF8(text[:limit], "")) // which frees the rest
	}
	return text
}

// Bounded returns the entry with all texts within their limits.
func (e AuditEntry) Bounded() AuditEntry {
	for _, text := range []*string{&e.Tenant, &e.Subject, &e.TokenID, &e.Issuer, &e.Scopes,
		&e.Action, &e.ObjectType, &e.Object,
		&e.Address, &e.Proxy, &e.RequestID, &e.UserAgent, &e.Code} {
		*text = AuditText(*text, MaxAuditText)
	}
	for _, text := range []*string{&e.Claimed.Issuer, &e.Claimed.Subject, &e.Claimed.Tenant,
		&e.Claimed.TokenID} {
		*text = AuditText(*text, MaxAuditClaim)
	}
	return e
}

// Actions that are no operationId of openapi.yaml.
const (
	AuditAny = "call.any" // of an entry for calls of several kinds
	// AuditChildren is the action of the job children, which corrected the counts of a task's
	// children.
	AuditChildren = "children.correct"
)

// ActionOf returns the audit's action for an operationId of openapi.yaml, and the type of its
// object: putTaskType gives task_type.put and task_type. The actions of calls come from here; they
// don't change.
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

// Retention of the audit.
const (
	DefaultAuditRetention = 365 * 24 * time.Hour
	// The database itself keeps entries for MinAuditRetention, whatever the setting.
	MinAuditRetention = 24 * time.Hour
	MaxAuditRetention = 10 * 365 * 24 * time.Hour
)
