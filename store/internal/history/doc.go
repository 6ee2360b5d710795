// Package history keeps what the tasks of each type did over time: by minute for a day, by hour for
// 30 days. A background job records it from counters that other work keeps anyway.
//
// A point is a set of numbers that only grow, until it is complete: recording a minute again, on
// another node or after a crash, finds the same numbers or greater ones, and the greater ones
// stand. So nothing is counted twice, and what was missed is found later.
//
// It uses packages counts and catalog. Begin with RecordHistory in record.go, then Read in read.go.
//
// It exports, by the first word of its files:
//
//   - fold: FoldHistory, NextFoldHistory, DryRunFoldHistory
//   - history: History, New
//   - marks: Mark
//   - point: Field, Submitted, Attempts, Failures, Snoozes, Succeeded, Failed, Cancelled, Redriven,
//     Ended, Busy, Pending, Waiting, Running, Values
//   - query: Query
//   - read: TypeHistory, TypePoints, Point, ReadHistory
//   - record: Recorded, RecordHistory
//   - recorded: RecordedSpan, ExtendHistory
//   - times: Times
//   - trouble: Trouble, Troubles, NoteUnread
package history
