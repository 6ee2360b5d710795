package store

import "github.com/asyncflow/asyncflow/store/internal/tasks"

// The words of package tasks for callers of the store.

type (
	// Attempt is a row of a task's journal.
	Attempt = tasks.Attempt
	// AttemptPage says which rows of a journal to read.
	AttemptPage = tasks.AttemptPage
	// DueOperation is a running operation and when its next step is due.
	DueOperation = tasks.DueOperation
	// AgedStep is what a step of the job erase did.
	AgedStep = tasks.AgedStep
	// FailureFilter says which failures to report.
	FailureFilter = tasks.FailureFilter
	// FailureGroup counts the failures with errors of one kind.
	FailureGroup = tasks.FailureGroup
	// EndPlace is a place in a list of tasks by their ends; zero: the beginning.
	EndPlace = tasks.EndPlace
	// FailureOrder is the order of the groups of a report.
	FailureOrder = tasks.FailureOrder
	// StageFailures is how many failures of a group a stage counts.
	StageFailures = tasks.StageFailures
	// FailureReport lists the tasks that failed in a time, by the kinds of their errors.
	FailureReport = tasks.FailureReport
	// Filter says which tasks of a type to list.
	Filter = tasks.Filter
	// LabelFilter selects tasks by their asyncflow.Labels.
	LabelFilter = tasks.LabelFilter
	// Link is how a task stands to a link of one of its deliveries.
	Link = tasks.Link
	// NewOperation is a caller's request.
	NewOperation = tasks.NewOperation
	// Operation cancels, redrives, reruns, changes or counts the tasks that a filter selects, step
	// by step.
	Operation = tasks.Operation
	// OperationKind says what an operation does with each task.
	OperationKind = tasks.OperationKind
	// Page is some of the tasks that a filter finds.
	Page = tasks.Page
	// Progress is a worker's report of how far it is.
	Progress = tasks.Progress
	// SpawnedCount is how many tasks of a type a task started.
	SpawnedCount = tasks.SpawnedCount
	// Step is what one step of an operation did.
	Step = tasks.Step
	// Task is a task as it stands.
	Task = tasks.Task
	// TaskCount is how many tasks a filter finds.
	TaskCount = tasks.TaskCount
	// Visit is one pass of a task through a stage.
	Visit = tasks.Visit
)

const (
	CancelTasks  = tasks.CancelTasks
	RedriveTasks = tasks.RedriveTasks
	// PrioritizeTasks changes the priority of pending and waiting tasks.
	PrioritizeTasks = tasks.PrioritizeTasks
	// DelayTasks changes when pending and waiting tasks run.
	DelayTasks = tasks.DelayTasks
	// RerunTasks runs final tasks again, as new tasks.
	RerunTasks = tasks.RerunTasks
	// CountAll counts tasks and changes nothing.
	CountAll = tasks.CountAll
	// EraseTasks erases the contents of final tasks.
	EraseTasks = tasks.EraseTasks
	// OperationRunning: a background job takes the next step when it is due.
	OperationRunning = tasks.OperationRunning
	// OperationDone: the operation visited all its tasks.
	OperationDone = tasks.OperationDone
	// OperationStopped: a caller stopped it.
	OperationStopped = tasks.OperationStopped
	// OperationFailed: it can't go on; Error says why.
	OperationFailed = tasks.OperationFailed
	// FailuresByCount: the largest group first.
	FailuresByCount = tasks.FailuresByCount
	// FailuresNewest: the group with the latest failure first.
	FailuresNewest = tasks.FailuresNewest
	// MaxSorted is how many tasks may be in a list by their ends.
	MaxSorted = tasks.MaxSorted
	// MaxFailures is how many failed tasks a report of failures reads at most.
	MaxFailures = tasks.MaxFailures
	// MaxFailureGroups is the most groups in a report of failures.
	MaxFailureGroups = tasks.MaxFailureGroups
	// MaxRunningCounts is how many counts of a tenant may run at once: to begin one costs nothing,
	// and all of them take turns with the operations of other tenants.
	MaxRunningCounts = tasks.MaxRunningCounts
	// ShortOutput is the size in bytes of the longest output that comes with an attempt when the
	// caller doesn't ask for outputs.
	ShortOutput = tasks.ShortOutput
	// MaxTaskCount is the greatest number that TaskCount counts to.
	MaxTaskCount = tasks.MaxTaskCount
)
