// Package settings keeps what owners and operators configure: task types, endpoints, schedules,
// tenants, alerts. It also migrates the schema.
//
// It uses packages trees, counts, hot, records and catalog. Each kind of setting has files of its
// name, and a type with their methods, which Settings embeds: begin with type_put.go.
//
// It exports, by the first word of its files:
//
//   - alert: EpisodesKept, Episodes, FiringEpisodes, EpisodesToNotify, ObserveAlerts,
//     BeginningAlerts, DryRunAlerts, RecordNotice, ForgetEpisodes, DryRunForgetEpisodes, Alerts,
//     PutAlerts, DeleteAlerts, TakeAlertTurn, Failures, FailedForGood, RollOpened
//   - audit: AuditFilter, AuditPlace, Audit
//   - endpoint: CreateEndpoint, ChangeEndpoint, DeleteEndpoint, SetHealth, EnableEndpoint,
//     ChangesKept, EndpointHistory, Endpoints, EndpointPlace, PlaceOf, EndpointPage, Endpoint,
//     Seals, Reseal, ForgetSecrets, DryRunForgetSecrets
//   - migrate: MigrationStatus, Option, WithoutRoles, NotDistributed, StaleOnly, Migrate, Gap,
//     Gaps, Status
//   - quota: CountLive, KnownKeys
//   - schedule: StoredSchedule, SchedulesOf, ScheduleColumns, SchedulePage, Schedule,
//     DeleteSchedule, PauseSchedule, ResumeSchedule, ScanSchedule, FailingSchedules, PutSchedule,
//     CheckSchedule
//   - settings: Settings, New
//   - submit: GrantSubmit, RevokeSubmit, SubmitLimits, NewSubmitLimits
//   - target: CreateTarget
//   - tenant: Tenant, TenantPage, NamedTenants, TenantPatch, PatchTenant, DeleteTenant,
//     RestoreTenant, TenantUsage, CreateTenant, DueDrop, DueDrops, BeginDrop, Dropped, DropStep,
//     DropTenantRole, MovePhase, MovePreparing, MoveCopying, MoveCatching, MoveSwitching,
//     MoveTidying, MoveProgress, Move, Moved, MoveTenant, Placements, PlannedMove, PlanRebalance
//   - token: MaxListedTokens, MaxRevokedTokens, Token, NoteToken, TokenPage, RevokeToken,
//     RevokedTokens, ForgetTokens, DryRunForgetTokens
//   - type: DeleteTaskType, HasDeletedTypes, Deleting, DeleteRows, TreeTables, TreeRows,
//     ForgetTypes, Pause, Resume, OwnSetTasks, AsksForOwnSet, OwnSet, JoinSharedSet, BusyTypes,
//     PutTaskType, CheckTaskType, TaskType, TypePage, MaxTypeRolls, TypeRoll, TypeRolls,
//     VersionsKept, VersionBytes, AppliedVersion, TypeVersion, TypeVersions
package settings
