// Package config has what is configured, as the rows of the database have it and as immutable
// snapshots of them: tenants, endpoints, task types, and the table sets with their rolls. Nothing
// here has a connection: who reads passes one.
//
// It uses packages postgres and schema. Begin with Type and TableSet: most methods of the rooms
// take a Type, which says in which tables its tasks are.
//
// It exports, by the first word of its files:
//
//   - endpoint: ReadEndpoints, ScanEndpoint, SelectEndpoints, EndpointColumns, EndpointsAndHealth,
//     ScanEndpointAnd, EndpointSecretsOf, EndpointsOf, HealthOf
//   - etag: ETagOf, EndpointETag
//   - lock: LockTables
//   - roll: Roll, LockPatience, ByPosition, ByRoll, ErrElsewhere, RolledOn, IsDataError,
//     QueueNewest, RollsNow, TaskRows, Remaining, CompactAfter, FirstOfRoll, OpenSet, ReviveRoll,
//     MarkDropping, UnlessBusy, LockRoll, KeepRoll, Trim, TrimAgain
//   - searchable: HasSearch
//   - table: TableSet, SharedSet, Location, ReadLocations, ReadLocation, Located, SameAs, LockSet
//   - tables: TableNames, NewTables, Readies, ReadySelects, TokenTables, KeyUntilFinal
//   - tenant: StoredTenant, Tenant, TenantColumns, ScanTenant, UnknownTenant, ReadTenant
//   - type: Type, Gathering, TypeKey, UnknownType, UnknownTask, InLineForClaims, Ordered, Parks,
//     LineTime, FreshFirst, HealthSince, ReadTypes, WithSuspended, StoredType, ReadTaskType,
//     TaskTypeColumns, ScanTaskType, PauseState
package config
