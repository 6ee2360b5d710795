// Package upkeep does the work of the background jobs: it rescues lost leases, promotes tasks that
// have become due, opens, seals and drops rolls, ticks schedules, folds counts, and forgets what is
// no longer needed.
//
// It uses all packages of rooms but claims. Begin with Jobs in job_overview.go; each job has a file
// of its name.
//
// It exports, by the first word of its files:
//
//   - checkpoint: ForgetCheckpoints, DryRunForgetCheckpoints
//   - job: DryRunRescue, DryRunPromote, DryRunVacuum, DryRunKeys, DryRunSchedules, DryRunFold,
//     DryRunOperations, DryRunForgetOperations, FirstForget, FirstKeys, LastTallies, Overview,
//     Overviews, JobRun, IdleEvery, ScheduleJobs, RecordJob, Jobs
//   - roll: MarkRemaining, CompactRoll, IdleRoll, DropRoll, EmptyRoll, OpenRoll, SealRoll,
//     DrainRoll, ClearRoll, PlanTrim, TrimRoll
//   - schedule: FirstTicks, Ticked, TickSchedules
//   - stats: FoldBatch, Fold, NextFold
//   - task: ExpireTasks, FirstLifetimes, TypesWithExpired, WillExpire, DryRunExpireTasks, Promote,
//     Rescue
//   - tenant: Tables, TokenTables, TallyTables, KeyTables, LifetimeTables, PlanTables,
//     FollowUpTables, AlertTables, HistoryTables, RecordTables, Activity
//   - upkeep: Upkeep, New
//   - vacuum: Vacuum, VacuumSet
package upkeep
