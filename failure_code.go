package asyncflow

import (
	"regexp"
	"strconv"
	"strings"
)

// FailureCode is why an endpoint failed an attempt: its HTTP status, or why there was no answer.
// There are few of them, so that no worker can make its counts grow. Counts are stored in the order
// of the codes, so new ones go to the end.
type FailureCode uint8

const (
	FailureOther FailureCode = iota // none of the others
	FailureTimeout
	FailureNoConnection   // it was refused, or the address can't be reached
	FailureConnectionLost // it broke off before the answer was complete
	FailureDNS
	FailureTLS
	FailureEgress // the operator lets no delivery go there
	FailureLogin  // the endpoint's token_url gave no token
	failureRedirect
	failureClient // another status of 4xx
	failureServer // another status of 5xx
	failureStatuses
)

// statuses with a FailureCode of their own, from failureStatuses on.
var statuses = [...]int{
	500, 502, 503, 504, 429, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422,
}

// FailureCodes is the number of FailureCodes that there are.
const FailureCodes = int(failureStatuses) + len(statuses)

var failureNames = [failureStatuses]string{"other", "timeout", "no_connection", "connection_lost",
	"dns", "tls", "egress", "login", "3xx", "4xx", "5xx"}

// String returns the name of a failure, such as timeout or 503.
func (f FailureCode) String() string {
	switch {
	case f < failureStatuses:
		return failureNames[f]
	case int(f) < FailureCodes:
		return strconv.Itoa(statuses[f-failureStatuses])
	}
	return failureNames[FailureOther] // a newer version knows it
}

// EndpointFailure returns why an outcome is one that EndpointFailed.
func (o Outcome) EndpointFailure() FailureCode {
	if o.Status == 0 {
		return o.Failure
	}
	for i, status := range statuses {
		if o.Status == status {
			return failureStatuses + FailureCode(i)
		}
	}
	switch o.Status / 100 {
	case 3:
		return failureRedirect
	case 4:
		return failureClient
	case 5:
		return failureServer
	}
	return FailureOther
}

// MaxErrorCode is the length of the longest ErrorCode.
const MaxErrorCode = 60

var errorCode = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$`)

// IsErrorCode reports whether a text can be an ErrorCode.
func IsErrorCode(text string) bool { return errorCode.MatchString(text) }

// ErrorCode returns the code of an attempt's error: lost, the status of the answer, why none came,
// or the word before a colon at the beginning of the text, such as invalid_spawn, or whatever a
// worker puts there; "": it has none. The status is negative if none came: see
// Outcome.StatusOrFailure.
func ErrorCode(kind OutcomeKind, status int, text string) string {
	switch {
	case text == "":
		return ""
	case kind == OutcomeLost:
		return string(OutcomeLost)
	case status < 0:
		return FailureCode(min(-status, FailureCodes)).String()
	case status >= 300:
		return strconv.Itoa(status)
	}
	word, _, found := strings.Cut(text, ": ")
	if !found || !IsErrorCode(word) {
		return ""
	}
	return word
}

// StatusOrFailure returns the HTTP status of an outcome, or the negative of the FailureCode if no
// answer came; 0: nothing is known of it.
func (o Outcome) StatusOrFailure() int {
	if o.Status == 0 && o.Kind == OutcomeFailed {
		return -int(o.Failure)
	}
	return o.Status
}
