// Package config has what is configured, as the rows of the database have it and as immutable
// snapshots of them: tenants, endpoints, task types, and the table sets with their rolls. Nothing
// here has a connection: who reads passes one.
//
// It uses packages postgres and schema. Begin with Type and TableSet: most methods of the rooms
// take a Type, which says in which tables its tasks are. The exported words, by subject:
//
//   - a type: Type, TypeKey, StoredType, PauseState, ReadTypes, ReadTaskType, UnknownType
//   - where its tasks are: TableSet, Location, TableNames, ReadLocation, RollsNow, Located
//   - a roll: Roll, OpenSet, ReviveRoll, LockRoll, UnlessBusy, ByRoll, ByPosition, RolledOn
//   - a tenant: Tenant, StoredTenant, ReadTenant, UnknownTenant
//   - an endpoint: ReadEndpoints, EndpointsOf, HealthOf, EndpointSecretsOf, ScanEndpoint
//   - what people set of each: ETagOf, EndpointETag
package config
