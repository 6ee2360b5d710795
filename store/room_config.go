package store

import (
	"iter"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// The words of package config for callers of the store.

type (
	// PauseState says whether a task type is paused, or is ramped up.
	PauseState = config.PauseState
	// Roll is one generation of the tables of a table set.
	Roll = config.Roll
	// StoredTenant is a tenant as its row says.
	StoredTenant = config.StoredTenant
	// StoredType is a task type with its state and its times.
	StoredType = config.StoredType
	// TableSet names the rolled tables that several task types share, or that one type keeps for
	// itself, as this node knows them: an immutable snapshot.
	TableSet = config.TableSet
	// Tenant is a tenant as this node knows it: an immutable snapshot.
	Tenant = config.Tenant
	// Type is a task type as this node knows it: an immutable snapshot.
	Type = config.Type
	// TypeKey names a task type among all tenants.
	TypeKey = config.TypeKey
)

// CompactAfter returns how long after its RemainingSince a roll is compacted at the earliest.
func CompactAfter(retention time.Duration) time.Duration { return config.CompactAfter(retention) }

// ByRoll divides tasks, sorted by roll, into one slice per roll.
func ByRoll[T any](tasks []T, idOf func(T) asyncflow.TaskID) iter.Seq[[]T] {
	return config.ByRoll(tasks, idOf)
}

// EndpointETag changes with all that callers set of an endpoint, and with its secrets, but not with
// its health nor its verification.
func EndpointETag(e asyncflow.Endpoint) string { return config.EndpointETag(e) }

// IsDataError reports whether Postgres refused the data of a statement, so that the same data would
// be refused again.
func IsDataError(err error) bool { return config.IsDataError(err) }

// RolledOn reports whether an error comes from a roll move: a statement met a table that was sealed
// or dropped.
func RolledOn(err error) bool { return config.RolledOn(err) }
