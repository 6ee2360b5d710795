package node

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/console"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// Roles of a node.
const (
	RoleAPI        = "api"
	RoleDispatcher = "dispatcher"
	RoleGovernance = "governance"
)

// AllRoles returns every role.
func AllRoles() []string { return []string{RoleAPI, RoleDispatcher, RoleGovernance} }

// Config is everything that a node needs.
type Config struct {
	Roles []string
	// Secret seals endpoint secrets and signs completion tokens; all nodes of a database
	// share it. What was sealed or signed with OldSecrets is still read.
	Secret     []byte
	OldSecrets [][]byte
	// Grace is how long attempts in flight may take to end after a stop.
	Grace time.Duration

	// DrainDelay is how long the API goes on after Run's context ends, while /readyz answers 503:
	// load balancers need the time to notice. A node that fails doesn't wait.
	DrainDelay time.Duration

	// The role api needs Listener and Tokens. Without an AdminListener, Listener serves
	// the administration as well.
	Listener      net.Listener
	AdminListener net.Listener
	Tokens        *auth.Verifier
	// Issuers keeps Tokens up to date; nil: their issuers don't change.
	Issuers Issuers

	// Console is the web console, which the role api serves; nil: there is none. The node fills
	// in what it shares: secrets, verifier, public URL, version and log.
	Console *console.Config

	// Metrics says where /metrics is served.
	Metrics MetricsPlace
	// MetricsListener serves the metrics if they are MetricsApart.
	MetricsListener net.Listener

	// Alerts is where the operator's alerts go.
	Alerts OperatorAlerts

	// The node fills in what the parts share: logs, keys, the sender, the store.
	Store      store.Config
	Callbacks  callbacks.Config
	Dispatcher dispatcher.Config
	Governance governance.Config
	API        httpapi.Config

	Log *slog.Logger
}

// Issuers keeps the issuers of tokens up to date.
type Issuers interface {
	// Run watches them until ctx ends.
	Run(ctx context.Context) error
	// Stale reports whether their newest version can't be used.
	Stale() bool
}

// MetricsPlace says where a node serves /metrics.
type MetricsPlace int

// Places of /metrics.
const (
	MetricsOff   MetricsPlace = iota // nowhere: nothing is counted
	MetricsOnAPI                     // on the listener of the API, for operators' tokens
	MetricsOpen                      // there, for all who can reach it
	MetricsApart                     // on a listener of their own
)
