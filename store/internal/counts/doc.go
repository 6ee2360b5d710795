// Package counts reads what was counted: statistics and backlogs of task types, the attempts at
// endpoints and by workers, and why tasks wait.
//
// It uses packages hot, records and catalog. Begin with Stats in stats.go.
//
// It exports, by the first word of its files:
//
//   - alert: DueSince, AlertTask
//   - counts: Counts, New
//   - endpoint: EndpointFailing, EndpointFailures, EndpointCounts, EndpointMinute, EachMinute,
//     Failing, MinutesEvery, MinutesKept, CountAttempt, WriteMinutes, ForgetMinutes,
//     DryRunForgetMinutes
//   - stats: RateWindow, Stats, Rates, ByTables, Backlog, BlockedKeys, Gauges, KeyTasks, StageLoad,
//     TypeTimes, StageClaims, StageWait, CountDeliveries, StartWaits
//   - task: WhyDue
//   - workers: MaxWorkers, WorkerState, WorkerGone, WorkerFailing, WorkerSlow, WorkerWell,
//     WorkerFilter, WorkerReport, WorkerKey, Worker, Workers
package counts
