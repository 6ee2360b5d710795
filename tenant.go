package asyncflow

import "time"

// TenantState is where a tenant stands.
type TenantState string

// The states of a tenant.
const (
	TenantActive TenantState = "active"
	// by an operator: its calls are refused, and nothing of it is leased
	TenantSuspended TenantState = "suspended"
	// suspended, and dropped after a grace unless it is restored
	TenantDeleted  TenantState = "deleted"
	TenantDropping TenantState = "dropping" // the grace is over: its tables go, one after another
)

const (
	// DefaultGrace is how long a deleted tenant can be restored, unless told.
	DefaultGrace = 7 * 24 * time.Hour
	// MaxGrace bounds that.
	MaxGrace = 365 * 24 * time.Hour
	// MaxReasonLength bounds the reason of a suspension in bytes.
	MaxReasonLength = 500
)

// CheckGrace tells whether a deleted tenant can be kept for a time.
func CheckGrace(grace time.Duration) error {
	if grace < 0 || grace > MaxGrace {
		return InvalidField("grace", "is %s; it must be 0s to %s (a year)", grace, MaxGrace)
	}
	return nil
}
