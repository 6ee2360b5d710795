// Package upkeep does the work of the background jobs: it rescues lost leases, promotes tasks that
// became due, opens, seals and drops rolls, ticks schedules, folds counts, and forgets what is no
// longer needed.
//
// It uses all packages of rooms but claims. Begin with Jobs in job_overview.go; there is a file for
// each job by its name.
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
//   - task: ExpireBatch, ExpireTasks, FirstLifetimes, TypesWithExpired, WillExpire,
//     DryRunExpireTasks, Promote, Rescue
//   - tenant: Tables, TokenTables, TallyTables, KeyTables, LifetimeTables, PlanTables,
//     FollowUpTables, AlertTables, HistoryTables, RecordTables, Activity
//   - upkeep: Upkeep, New
//   - vacuum: Vacuum, VacuumSet
package upkeep
