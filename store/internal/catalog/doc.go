// Package catalog is what all rooms of the store that do something share: the connections, the
// cached configuration of all tenants, locks, the live nodes, and announcements between them.
//
// It uses packages news, config, postgres, schema and lowwater below it. Begin with Core, then
// Catalog.
//
// It exports, by the first word of its files:
//
//   - catalog: Catalog, CatalogRetry, RefreshEvery
//   - core: Config, Core
//   - database: PoolStat
//   - job: Due, JobBatch
//   - lock: LeaseLock, ClaimerLock, DependentsLock, CountsLock, TriedLock, QueueLocks, LockKey,
//     ClaimerNumber
//   - meter: Meter, TypeMeter, Times, TimesCounts, TimesKey
//   - nodes: Node
//   - open: Open, Loop
//   - placements: Placements
//   - submitted: Submitted, Submit
//   - wakeups: ConfigChannel, Wakeups
package catalog
