package asyncflow

import "strings"

// MaxWorkerName is the length in bytes up to which the name of a worker counts.
const MaxWorkerName = 64

// WorkerHeader is the header in which a worker names itself: in its answers to deliveries, and in
// its calls. Behind a load balancer nothing else tells which machine it is.
const WorkerHeader = "Asyncflow-Worker"

// WorkerName returns the name that a worker gave, if it counts: 1 to MaxWorkerName printable ASCII
// characters without spaces. Any other name is dropped: a name never makes an answer or a call
// fail.
func WorkerName(name string) string {
	if len(name) > MaxWorkerName || strings.ContainsFunc(name, func(c rune) bool {
		return c <= ' ' || c > '~'
	}) {
		return ""
	}
	return name
}

// NodeID returns what tenants see of a node: the last part of its name, which identifies it but
// without the name of its host.
func NodeID(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// nodeMark and workerMark are before a node's id and a worker's name in the journal.
const (
	nodeMark   = "\x1e"
	workerMark = "\x1f"
)

// RunLocation returns what stands in the journal in place of an endpoint for an attempt that a node
// sent, or handed out, and that a worker ran: "" for what isn't known. endpoint is a URL, or
// ClaimedBy. A claimer without a subject gets an empty one, so that nodes of the version before
// read its name.
func RunLocation(endpoint, node, worker string) string {
	if node == "" && worker == "" {
		return endpoint
	}
	if claimer, subject := ClaimerOf(endpoint); claimer != "" && subject == "" {
		endpoint += " "
	}
	if worker == "" {
		return endpoint + nodeMark + node
	}
	return endpoint + nodeMark + node + workerMark + worker
}

// ParseRunLocation is the opposite of RunLocation.
func ParseRunLocation(text string) (endpoint, node, worker string) {
	i := strings.LastIndex(text, nodeMark)
	if i < 0 {
		return text, "", ""
	}
	node, worker, _ = strings.Cut(text[i+len(nodeMark):], workerMark)
	endpoint = text[:i]
	if claimer, subject := ClaimerOf(endpoint); claimer != "" && subject == "" {
		endpoint = strings.TrimSuffix(endpoint, " ")
	}
	return endpoint, node, worker
}

// RunLocationEnd is the end of RunLocation of each attempt that a worker ran.
func RunLocationEnd(worker string) string { return workerMark + worker }

// Location returns the RunLocation of a settled attempt. node is the node that sent it unless its
// lease names another.
func (s *Settlement) Location(node string) string {
	switch s.Outcome.Kind {
	case OutcomeDone, OutcomeFailed, OutcomeRejected, OutcomeSnoozed, OutcomeLost:
		if s.Lease.Node != "" {
			node = s.Lease.Node
		}
	case OutcomeCancelled: // by a caller: perhaps it never began
		node = s.Lease.Node
	case OutcomeReleased:
		if s.Lease.Claimer == "" { // it was not sent
			return s.Outcome.Endpoint
		}
		node = s.Lease.Node
	default:
		return s.Outcome.Endpoint
	}
	worker := s.Outcome.Worker
	if worker == "" {
		worker = s.Lease.Worker
	}
	return RunLocation(s.Outcome.Endpoint, NodeID(node), worker)
}
