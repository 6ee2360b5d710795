package store

import (
	"context"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

// The words of package settings for callers of the store.

type (
	// AppliedVersion says when a version of a task type was applied.
	AppliedVersion = settings.AppliedVersion
	// Alerts are the endpoint of a tenant's alerts and the rules that raise them.
	Alerts = settings.Alerts
	// AuditFilter says which entries to list.
	AuditFilter = settings.AuditFilter
	// AuditPlace is the place of an entry in the order of lists.
	AuditPlace = settings.AuditPlace
	// Deleting says how far DeleteRows came.
	Deleting = settings.Deleting
	// EndpointHistory is what is known of an endpoint's last hour, and of its health before.
	EndpointHistory = settings.EndpointHistory
	// EndpointPlace is the place of an endpoint in lists: by type, stage and age.
	EndpointPlace = settings.EndpointPlace
	// Gap is a role or a grant that a database lacks.
	Gap = settings.Gap
	// Move says which tenant goes to which worker of Citus.
	Move = settings.Move
	// Moved is a move that was made.
	Moved = settings.Moved
	// MovePhase says what a move is doing.
	MovePhase = settings.MovePhase
	// MoveProgress says how far a move is.
	MoveProgress = settings.MoveProgress
	// MigrationStatus says how far a schema is behind this program.
	MigrationStatus = settings.MigrationStatus
	// Option says how a database is administered.
	Option = settings.Option
	// PlannedMove is a move that fills workers of Citus more evenly.
	PlannedMove = settings.PlannedMove
	// StoredSchedule is a schedule with its state and its times.
	StoredSchedule = settings.StoredSchedule
	// TenantPatch says what to change of a tenant.
	TenantPatch = settings.TenantPatch
	// Token is what is known of a token.
	Token = settings.Token
	// TypeRoll is a roll that may keep tasks of a type.
	TypeRoll = settings.TypeRoll
)

const (
	// ChangesKept is how many changes of an endpoint's health are kept.
	ChangesKept = settings.ChangesKept
	// OwnSetTasks is how many tasks of a type in the open roll of the shared set make it busy.
	OwnSetTasks = settings.OwnSetTasks
	// MaxListedTokens is how many tokens are listed, and MaxRevokedTokens how many may be revoked.
	MaxListedTokens  = settings.MaxListedTokens
	MaxRevokedTokens = settings.MaxRevokedTokens
	// VersionsKept is how many earlier versions of a task type are kept.
	VersionsKept = settings.VersionsKept
	// VersionBytes is how many bytes the kept versions of a type take together.
	VersionBytes = settings.VersionBytes
	// MaxTypeRolls is how many rolls TypeRolls returns at most.
	MaxTypeRolls = settings.MaxTypeRolls
)

// AsksForOwnSet reports whether a type's settings ask for tables of its own.
func AsksForOwnSet(t asyncflow.TaskType) bool { return settings.AsksForOwnSet(t) }

// CreateTenant makes a tenant's schema, its role and its row, and reports whether the tenant is
// new.
func CreateTenant(ctx context.Context, url, tenant string, opts ...Option) (bool, error) {
	return settings.CreateTenant(ctx, url, tenant, opts...)
}

// Migrate brings the schema asyncflow and every tenant's schema of the database at url to the
// newest version, and returns their status before.
func Migrate(ctx context.Context, url string, opts ...Option) ([]MigrationStatus, error) {
	return settings.Migrate(ctx, url, opts...)
}

// MoveSwitching is the phase in which a tenant's writes are blocked.
const MoveSwitching = settings.MoveSwitching

// MoveTenant moves a tenant to another worker of Citus, and calls tell with its progress.
func MoveTenant(
	ctx context.Context, url string, move Move, tell func(MoveProgress),
) (Moved, error) {
	return settings.MoveTenant(ctx, url, move, tell)
}

// PlanRebalance returns the moves that Citus proposes so that its workers are filled evenly.
func PlanRebalance(ctx context.Context, url string) ([]PlannedMove, error) {
	return settings.PlanRebalance(ctx, url)
}

// PlaceOf returns the place of an endpoint.
func PlaceOf(e asyncflow.Endpoint) EndpointPlace { return settings.PlaceOf(e) }

// StaleOnly makes Migrate look only at the tenants whose rows say that they need it.
func StaleOnly() Option { return settings.StaleOnly() }

// Gaps returns the roles and grants that a database lacks, as after a restore, and changes nothing.
func Gaps(ctx context.Context, url string, opts ...Option) ([]Gap, error) {
	return settings.Gaps(ctx, url, opts...)
}

// Status returns the migration status of every schema and changes nothing.
func Status(ctx context.Context, url string) ([]MigrationStatus, error) {
	return settings.Status(ctx, url)
}

// WithoutRoles makes and uses no database roles if off is set, see Config.NoRoles.
func WithoutRoles(off bool) Option { return settings.WithoutRoles(off) }

// NotDistributed makes tenants as if there were no Citus if off is set, see Config.NotDistributed.
func NotDistributed(off bool) Option { return settings.NotDistributed(off) }
