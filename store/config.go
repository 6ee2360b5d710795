package store

import (
	"log/slog"

	"github.com/asyncflow/asyncflow"
)

// Config configures a Store.
type Config struct {
	URL   string // postgres://…
	Node  string // this node's id, unique among the nodes of a database
	Roles string // what this node does, for the list of nodes
	Build string // version of this program, for the list of nodes

	// Pool bounds the connections for requests and governance; 0: 10.
	Pool int
	// HotPool bounds the connections that submit, lease and settle; 0: 4. With more of them,
	// batches are smaller.
	HotPool int
	// Notify announces new work to other nodes by NOTIFY. Without it (behind a transaction pooler,
	// or with another engine) dispatchers poll.
	Notify bool
	// NoRoles does all work as the user of URL, without a database role for each tenant.
	NoRoles bool
	// DefaultQuotas are the quotas of tenants without their own; 0: asyncflow.DefaultQuotas.
	DefaultQuotas asyncflow.Quotas
	// MaxContext is the limit of contexts in bytes. It and the quotas also apply to tasks that are
	// submitted by SQL. 0: this process doesn't set it.
	MaxContext int
	// PublicURL is where workers reach the API, for the contexts of tasks.
	PublicURL string
	// Meter counts the work of this node; nil: none does.
	Meter Meter

	Log *slog.Logger
}
