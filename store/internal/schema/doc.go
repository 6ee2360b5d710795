// Package schema names the schemas of a database, brings them up to date, and makes and
// grants the roles that keep tenants apart. The migrations themselves are in package
// migrations.
//
// It exports, by the first word of its files:
//
//   - check: Check, CheckBase
//   - create: ErrThere, Create
//   - development: RefuseDevelopment
//   - distribute: CitusVersion, Distributes, Distribute, RevokeOnWorkers
//   - gaps: Gap, Gaps
//   - migrate: Status, Migrate, Statuses, MigrateOne, LatestTenant, MigrateTenant
//   - names: Base, Of, ErrMissing
//   - role: RoleFence, OpenRoleFence, RoleFenceIn, RestoreRights, PrepareWorkers, CheckLogins
//   - stale: MigrateStale
//   - table: LockForMove, IsMoving
package schema
