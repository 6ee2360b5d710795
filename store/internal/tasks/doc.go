// Package tasks reads, lists and watches tasks, and cancels, redrives or changes one of them or
// many, by operations.
//
// It uses packages trees, counts, hot, records and catalog. Begin with Task in read.go and TaskPage
// in list.go.
//
// It exports, by the first word of its files:
//
//   - attempts: ShortOutput, Attempt, AttemptPage, JournalOf, Attempts
//   - cancel: Cancel
//   - change: Change
//   - checkpoint: StageCheckpoint, Checkpoint
//   - context: SubmittedContext
//   - count: MaxTaskCount, CountLook, TaskCount
//   - erase: Erase, AgedStep, AgingTypes, BeginAging, EraseAged, OverdueContents, DryRunAged
//   - failures: MaxFailures, MaxFailureGroups, FailureOrder, FailuresByCount, FailuresNewest,
//     FailureFilter, FailureReport, GroupFailures, FailureGroup, StageFailures, FailureExample
//   - filter: Filter, LabelFilter
//   - link: Link, SentLink
//   - list: Page, Searched, PageLook, PageText, Tasks, TaskPage, MaxSorted, EndPlace, EndedPage
//   - operation: OperationKind, CancelTasks, RedriveTasks, PrioritizeTasks, DelayTasks, RerunTasks,
//     CountAll, EraseTasks, OperationState, OperationRunning, OperationDone, OperationStopped,
//     OperationFailed, NewOperation, Operation, MaxRunningCounts, OperationsKept, OperationPage,
//     StopOperation, ForgetOperations, CountTasks, StartOperation, DueOperation, FirstSteps,
//     DueOperations, Step, StepOperation
//   - path: Visit
//   - read: Task, BareTask, TaskStatus, AwaitFinal, SpawnedCount, SignalWait
//   - redrive: Redrive
//   - rerun: Rerun, RerunByKey
//   - run: Run, Progress, SetProgress
//   - tasks: Tasks, New
//   - tree: TreePause, PauseTree, ResumeTree
//   - vote: Votes
//   - watch: Follow, WatchPause, Watch
package tasks
