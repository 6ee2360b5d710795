// Package postgres opens and watches a node's connections to Postgres. It keeps two kinds of pools,
// gives every statement a deadline on this side, closes connections to a server that fell silent,
// and runs each statement of a tenant under that tenant's role. It knows no table but the ones with
// the names of the roles.
//
// It exports, by the first word of its files:
//
//   - arrays: PresizeArrays, Moments, Texts, Moment
//   - confirm: Confirm
//   - deadlines: BaseStatement, ConnectTimeout, Patient
//   - dial: Connect, ConnectTo
//   - entry: Distributed
//   - errors: State, FirstError, IsPassing, Sealed, IsSealed, IsMoving, RolledBack, Wrap,
//     ConnectError, ConnectErrorOr, Countable, IsDataException, IsRefused, ErrSame, ErrDry,
//     ErrIdle
//   - hot: HotPool, NewHotPool
//   - page: PageBytes, CollectPage, Place
//   - placed: PlacedTables, NewPlacedTables
//   - pool: KeptSetting, PoolConfig, Server, NewPool, PoolGroup, PoolStat
//   - pooler: Pooler, OpenPooler, ServerOf, Direct, IsDirect
//   - prober: Prober, NewProber
//   - query: Querier, Unprepared, OrZero, CountRows, Execer, OrNull, QueueSettings, SearchSettings,
//     Pin
//   - replicated: ErrNotReplicated, BeginFunc
//   - roles: Roles, NewRoles, ErrNoRole
//   - set: Setup, ConfigFor
//   - settings: SearchPath, AdminSettings, PinnedSettings, HotSettings
//   - share: Shares, NewShares
//   - sql: Quote
//   - tenant: TenantConn, CommitWith, TenantDB, Acquire, NewTenantDB
package postgres
