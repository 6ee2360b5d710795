package asyncflow

import (
	"slices"
	"strings"
)

// ListenURL is stored in place of the URL of an endpoint for listening. Callers can't give it: see
// Endpoint.Validate.
const ListenURL = "listen:"

// Listens reports whether the endpoint is for listening: deliveries aren't sent to it, but a
// program claims them and passes them on to a worker (see asyncflow listen). There are signing
// secrets for it, but nothing that says how to send.
func (e Endpoint) Listens() bool { return e.URL == ListenURL }

// WithListeners returns the type as it works with its endpoints: workers ask for the tasks of a
// stage with an endpoint for listening, unless that one gets no deliveries.
func (t TaskType) WithListeners(endpoints []Endpoint) TaskType {
	var copied bool
	for _, e := range endpoints {
		i := t.StageIndex(e.Stage)
		if i < 0 || e.Type != t.Name || !e.Listens() || !e.Serves() ||
			t.Stages[i].Mode == ModeWait {
			continue
		}
		if !copied {
			t.Stages, copied = slices.Clone(t.Stages), true
		}
		t.Stages[i].Listened = t.Stages[i].Listened || t.Stages[i].Mode != ModeClaim
		t.Stages[i].Mode = ModeClaim
	}
	return t
}

// ReportedBy returns what stands in the journal in place of an endpoint when a claimer reports. If
// its stage is only listened to, the endpoint for listening did it: a vote then counts as one that
// was pushed, since one endpoint gets all votes on a task, too.
func (t TaskType) ReportedBy(l Lease) string {
	by := ClaimedBy(l.Claimer, l.Subject)
	if i := t.StageIndex(l.Stage); by != "" && i >= 0 && t.Stages[i].Listened {
		return ListenURL + strings.TrimPrefix(by, claimedBy)
	}
	return by
}

// ListenerOf returns the claimer of an attempt at a stage that was listened to, and the subject of
// its token, by the attempt's endpoint in the journal; "": nobody listened, or the token had no
// subject.
func ListenerOf(endpoint string) (claimer, subject string) {
	both, heard := strings.CutPrefix(endpoint, ListenURL)
	if !heard {
		return "", ""
	}
	claimer, subject, _ = strings.Cut(both, " ")
	return claimer, subject
}

// VotesAreNamed reports whether each claimer of the stage's tasks gets one vote on a task.
func (s Stage) VotesAreNamed() bool { return s.Quorum != nil && s.Mode == ModeClaim && !s.Listened }

// CheckListeners returns the error of a type that can't be claimed, but works with endpoints for
// listening.
func (t TaskType) CheckListeners(endpoints []Endpoint) error {
	var out problems
	t.WithListeners(endpoints).checkClaims(&out)
	return out.err()
}

const notSent = "can't be combined with listen: nothing is sent to the endpoint"

// ForListening returns a new endpoint as one for listening, or the error of one with a URL or
// limits.
func (e Endpoint) ForListening() (Endpoint, error) {
	var out problems
	if e.URL != "" {
		out.add("url", notSent)
	}
	e.URL, e.Challenged = ListenURL, false
	e.checkNames(&out)
	e.checkUnlimited(&out)
	return e, out.err()
}

// ValidateListens is Validate for an endpoint for listening, which is without a URL and limits.
func (e Endpoint) ValidateListens() error {
	var out problems
	e.checkNames(&out)
	e.checkUnlimited(&out)
	return out.err()
}

// checkUnlimited refuses limits and batches, for an endpoint for listening.
func (e Endpoint) checkUnlimited(out *problems) {
	if e.Limits.MaxInFlight != 0 {
		out.add("max_in_flight", notSent)
	}
	if !e.Limits.Rate.IsZero() {
		out.add("rate", notSent)
	}
	if !e.Batch.IsZero() {
		out.add("batch", notSent)
	}
}

// checkNothing refuses all settings, for an endpoint for listening.
func (o Outbound) checkNothing(out *problems) {
	if len(o.Headers) > 0 {
		out.add("headers", notSent)
	}
	if o.Auth.Kind != "" {
		out.add("auth", notSent)
	}
	if o.TLS != (EndpointTLS{}) {
		out.add("tls", notSent)
	}
}
