package asyncflow

import "time"

// TenantState is the state of a tenant.
type TenantState string

// The states of a tenant.
const (
	TenantActive TenantState = "active"
	// by an operator: its calls are refused, and its tasks are not leased
	TenantSuspended TenantState = "suspended"
	// suspended; dropped after the grace period unless restored
	TenantDeleted TenantState = "deleted"
	// the grace period is over: its tables are being dropped
	TenantDropping TenantState = "dropping"
)

const (
	// DefaultGrace is the default time in which a deleted tenant can be restored.
	DefaultGrace = 7 * 24 * time.Hour
	// MaxGrace bounds that time.
	MaxGrace = 365 * 24 * time.Hour
	// MaxReasonLength bounds the reason of a suspension in bytes.
	MaxReasonLength = 500
)

// CheckGrace refuses a grace period that is out of range.
func CheckGrace(grace time.Duration) error {
	if grace < 0 || grace > MaxGrace {
		return InvalidField("grace", "is %s; it must be 0s to %s (a year)", grace, MaxGrace)
	}
	return nil
}
