package client

import (
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// The documents of the API. A program that uses this package needs to import no other package for
// them.
type (
	// NewTask is a task to submit. Type and Context are required; zero fields are left out. Key
	// makes the submit idempotent, RunAt or Delay sets a time, Priority and Retry override the ones
	// of the stages. See [api.NewTask] for its fields.
	NewTask = api.NewTask

	// OnFinal says where the end of a task is told. See [api.OnFinal] for its fields.
	OnFinal = api.OnFinal

	// SpawnedTask is a task that an attempt starts: see worker.Spawn. See [api.SpawnedTask]
	// for its fields.
	SpawnedTask = api.SpawnedTask

	// Dependency is a task that another one waits for; see OnTask and OnKey. See [api.Dependency]
	// for its fields.
	Dependency = api.Dependency

	// RedriveOptions say how to redrive a task. See [api.Redrive] for its fields.
	RedriveOptions = api.Redrive

	// NewSignal is a signal to send: its Name, and the Task that it is for, by its id, or by its
	// Type and idempotency Key. See [api.NewSignal] for its fields.
	NewSignal = api.NewSignal

	// SentSignal is the answer to a signal: the Task that gets it, or until when it is kept for the
	// one that will hold its key. See [api.SentSignal] for its fields.
	SentSignal = api.SentSignal

	// SubmittedTask is the answer to a submit: the task's ID, and its status. Existing reports
	// whether the Key had a task already; then OrderTime may be zero. See [api.SubmittedTask] for
	// its fields.
	SubmittedTask = api.SubmittedTask

	// Task is a task as it is now: its status, stage and attempt, its Context, and, once it
	// succeeded, its Result. See [api.Task] for its fields.
	Task = api.Task

	// TaskList is a page of tasks, without their contexts and results, and the cursor of the next
	// one. See [api.TaskList] for its fields.
	TaskList = api.TaskList

	// Searched are the tasks that were searched for a page. See [api.Searched] for its fields.
	Searched = api.Searched

	// TaskCount is the number of tasks that a filter finds, and whether it is exact. See
	// [api.TaskCount] for its fields.
	TaskCount = api.TaskCount

	// TaskPatch changes when a task runs: by Priority, RunAt or Delay. Zero fields keep their
	// values. See [api.TaskPatch] for its fields.
	TaskPatch = api.TaskPatch

	// Attempt is an entry of a task's journal: how an attempt ended, or another change of the task.
	// See [api.Attempt] for its fields.
	Attempt = api.Attempt

	// OptionChange is what a change made of an option of a task, before and after it as JSON.
	// See [api.OptionChange] for its fields.
	OptionChange = api.OptionChange

	// AttemptList is a page of the journal of a task, oldest first, and the cursor of the next one.
	// See [api.AttemptList] for its fields.
	AttemptList = api.AttemptList

	// ChildResult is how a child ended: an entry of the results of a fan-out with results that are
	// "settled". See [api.ChildResult] for its fields.
	ChildResult = api.ChildResult

	// ChildResults is a page of how the children of a task ended. See [api.ChildResults] for its
	// fields.
	ChildResults = api.ChildResults

	// TaskCheckpoint is what an attempt left for the next one of its stage. See
	// [api.TaskCheckpoint] for its fields.
	TaskCheckpoint = api.TaskCheckpoint

	// VoteList are the votes on a task. See [api.VoteList] for its fields.
	VoteList = api.VoteList

	// AuditEntry is an audited call: who made it, when, from where, and its outcome. See
	// [api.AuditEntry] for its fields.
	AuditEntry = api.AuditEntry

	// AuditList is a page of the audit, newest first, and the cursor of the next one. See
	// [api.AuditList] for its fields.
	AuditList = api.AuditList

	// AuditOutcome is the outcome of a call, such as AuditDone. See [api.AuditOutcome].
	AuditOutcome = api.AuditOutcome

	// TaskType is a task type as it was last applied, with its version and its defaults filled in.
	// See [api.TaskType] for its fields.
	TaskType = api.TaskType

	// TaskTypeSpec is a task type to apply. Stages is required, with a name for each; zero fields
	// get their defaults. See [api.TaskTypeSpec] for its fields.
	TaskTypeSpec = api.TaskTypeSpec

	// TaskTypeList is a page of the task types of the tenant, by name, and the cursor of the next
	// one. See [api.TaskTypeList] for its fields.
	TaskTypeList = api.TaskTypeList

	// TaskTypeVersionList are the versions of a task type that are kept, newest first. See
	// [api.TaskTypeVersionList] for its fields.
	TaskTypeVersionList = api.TaskTypeVersionList

	// TaskTypeVersion is a version of a task type as it was applied. See [api.TaskTypeVersion] for
	// its fields.
	TaskTypeVersion = api.TaskTypeVersion

	// AppliedVersion says when a version of a task type was applied. See [api.AppliedVersion] for
	// its fields.
	AppliedVersion = api.AppliedVersion

	// RollList are the rolls of a task type, newest first. See [api.RollList] for its fields.
	RollList = api.RollList

	// Roll is one generation of the tables that may keep tasks of a task type: its size, its age,
	// and when it is dropped. See [api.Roll] for its fields.
	Roll = api.Roll

	// Stage is one step of a task type. Name is required; zero fields get their defaults. See
	// [api.Stage] for its fields.
	Stage = api.Stage

	// NewEndpoint registers the URL of a worker for a stage. Type, Stage and URL are required; zero
	// fields are left out. Without a Secret, the server makes one and returns it once. MaxInFlight
	// and Rate limit the deliveries, Weight shares them among endpoints, Headers, Auth and TLS are
	// added to them, and Batch puts several tasks into one request. See [api.NewEndpoint] for its
	// fields.
	NewEndpoint = api.NewEndpoint

	// Endpoint is a registered URL with its limits, health and verification. Its Secret is set only
	// in the answer that made it. See [api.Endpoint] for its fields.
	Endpoint = api.Endpoint

	// EndpointList is a page of the endpoints of the tenant, or of a type, and the cursor of the
	// next one. See [api.EndpointList] for its fields.
	EndpointList = api.EndpointList

	// EndpointPatch changes an endpoint. Nil fields keep their values. See [api.EndpointPatch] for
	// its fields.
	EndpointPatch = api.EndpointPatch

	// EndpointSecret is one of the secrets that sign deliveries to an endpoint, without the secret
	// itself. See [api.EndpointSecret] for its fields.
	EndpointSecret = api.EndpointSecret

	// EndpointHealth is the health of an endpoint, and the reason if it gets no deliveries. See
	// [api.EndpointHealth] for its fields.
	EndpointHealth = api.EndpointHealth

	// EndpointTest is the context of a test delivery; nil: {}. See [api.EndpointTest] for its
	// fields.
	EndpointTest = api.EndpointTest

	// EndpointTestResult is what a test delivery sent and what came back. See
	// [api.EndpointTestResult] for its fields.
	EndpointTestResult = api.EndpointTestResult

	// EndpointHistory is the last hour of an endpoint, and the states of its circuit breaker. See
	// [api.EndpointHistory] for its fields.
	EndpointHistory = api.EndpointHistory

	// EndpointMinute counts the attempts at an endpoint in a minute. See [api.EndpointMinute] for
	// its fields.
	EndpointMinute = api.EndpointMinute

	// EndpointState is a state of an endpoint's circuit breaker, and since when. See
	// [api.EndpointState] for its fields.
	EndpointState = api.EndpointState

	// FailureCodes counts failed attempts by their HTTP status, or why there was no answer. See
	// [api.FailureCodes] for the codes.
	FailureCodes = api.FailureCodes

	// Latency is how long attempts took, in milliseconds. See [api.Latency] for its fields.
	Latency = api.Latency

	// EndpointAuth is how asyncflow logs in at an endpoint: a bearer token, basic, or OAuth 2.0
	// client credentials. See [asyncflow.EndpointAuth] for its fields.
	EndpointAuth = asyncflow.EndpointAuth

	// EndpointBatch puts several tasks into one request: at most MaxTasks. A task waits for others
	// at most MaxWait. See [api.EndpointBatch] for its fields.
	EndpointBatch = api.EndpointBatch

	// EndpointTLS are the certificates of deliveries to an endpoint, in PEM. See
	// [asyncflow.EndpointTLS] for its fields.
	EndpointTLS = asyncflow.EndpointTLS

	// SecretRotation says how to replace the secret of an endpoint, and how long the old one still
	// signs, too. See [api.SecretRotation] for its fields.
	SecretRotation = api.SecretRotation

	// BulkCancellation says which tasks to cancel. Type is required; zero fields are left out.
	// DryRun is set by the methods. See [api.BulkCancellation] for its fields.
	BulkCancellation = api.BulkCancellation

	// BulkRedrive says which tasks to redrive. Type is required; zero fields are left out. DryRun
	// is set by the methods. See [api.BulkRedrive] for its fields.
	BulkRedrive = api.BulkRedrive

	// BulkPriority says which tasks get which priority. Type and Priority are required; zero fields
	// are left out. DryRun is set by the methods. See [api.BulkPriority] for its fields.
	BulkPriority = api.BulkPriority

	// BulkDelay says which tasks run when. Type and either Delay or RunAt are required; zero fields
	// are left out. DryRun is set by the methods. See [api.BulkDelay] for its fields.
	BulkDelay = api.BulkDelay

	// BulkRerun says which tasks to run again as new tasks. Type is required; zero fields are left
	// out. DryRun is set by the methods. See [api.BulkRerun] for its fields.
	BulkRerun = api.BulkRerun

	// RerunOptions says what is different in a new task that runs another one again. See
	// [api.Rerun] for its fields.
	RerunOptions = api.Rerun

	// BulkErasure says which tasks to erase. Type is required; zero fields are left out. DryRun is
	// set by the methods. See [api.BulkErasure] for its fields.
	BulkErasure = api.BulkErasure

	// Erasure says when and by whom the contents of a task were erased. See [api.Erasure] for its
	// fields.
	Erasure = api.Erasure

	// BulkCount says which tasks to count. Type is required; zero fields are left out. See
	// [api.BulkCount] for its fields.
	BulkCount = api.BulkCount

	// Operation cancels, redrives, changes or counts many tasks in the background: its progress,
	// and whether it is over. See [api.Operation] for its fields.
	Operation = api.Operation

	// FailureParams say which failures to group. Zero fields are not sent; without a Type, the
	// failures of all types are. See [api.GetFailuresParams] for its fields.
	FailureParams = api.GetFailuresParams

	// FailureReport lists the tasks that failed in a time, by the kinds of their errors. See
	// [api.FailureReport] for its fields.
	FailureReport = api.FailureReport

	// FailureGroup counts the failures with errors of one kind. See [api.FailureGroup] for its
	// fields.
	FailureGroup = api.FailureGroup

	// WorkerParams say which workers to list. Zero fields are not sent; without a Type, the workers
	// of all types are. See [api.ListWorkersParams] for its fields.
	WorkerParams = api.ListWorkersParams

	// WorkerReport lists the workers that run tasks now, or ended attempts lately. See
	// [api.WorkerReport] for its fields.
	WorkerReport = api.WorkerReport

	// WorkerHealth is how a worker does in a stage. See [api.WorkerHealth] for its fields.
	WorkerHealth = api.WorkerHealth

	// WorkerDuration is how long the attempts of a worker took. See [api.WorkerDuration] for its
	// fields.
	WorkerDuration = api.WorkerDuration

	// OperationFilter says which tasks of its type an operation is for. See [api.OperationFilter]
	// for its fields.
	OperationFilter = api.OperationFilter

	// OperationList is a page of the operations that run and all of the last 30 days, newest first,
	// and the cursor of the next one. See [api.OperationList] for its fields.
	OperationList = api.OperationList

	// OperationState says whether an operation runs or how it ended, such as OperationRunning. See
	// [api.OperationState].
	OperationState = api.OperationState

	// Tenant is a tenant with its quotas and its state. See [api.Tenant] for its fields.
	Tenant = api.Tenant

	// NewTenant is a tenant to make. Slug, its name, is required. See [api.NewTenant] for its
	// fields.
	NewTenant = api.NewTenant

	// TenantHealth is what is wrong with a tenant. See [api.TenantHealth] for its fields.
	TenantHealth = api.TenantHealth

	// TenantList is a page of tenants, by name, and the cursor of the next one. See
	// [api.TenantList] for its fields.
	TenantList = api.TenantList

	// TenantPatch changes the quotas of a tenant, suspends or resumes it. Nil fields keep their
	// values. See [api.TenantPatch] for its fields.
	TenantPatch = api.TenantPatch

	// Quotas are the limits of a tenant, as they were set. See [api.Quotas] for its fields.
	Quotas = api.Quotas

	// QuotaChanges are quotas to set: -1 means no limit, 0 the operator's default; nil changes
	// nothing. See [api.QuotaChanges] for its fields.
	QuotaChanges = api.QuotaChanges

	// QuotaUsage is one quota with how much of it is in use. See [api.QuotaUsage] for its fields.
	QuotaUsage = api.QuotaUsage

	// QuotaList is all quotas of the tenant, also quotas without a limit. See [api.QuotaList] for
	// its fields.
	QuotaList = api.QuotaList

	// Schedule is a recurring task as it was last applied, with its next runs. See [api.Schedule]
	// for its fields.
	Schedule = api.Schedule

	// ScheduleSpec is a recurring task to apply. Type, Context, and Cron or Every are required;
	// zero fields get their defaults. See [api.ScheduleSpec] for its fields.
	ScheduleSpec = api.ScheduleSpec

	// ScheduleList is a page of the schedules of the tenant by name, without their contexts, and
	// the cursor of the next one. See [api.ScheduleList] for its fields.
	ScheduleList = api.ScheduleList

	// Children counts the children of a task by their status. See [api.Children] for its fields.
	Children = api.Children
	// TreeCounts counts the tasks of all levels below a task. See [api.TreeCounts] for its fields.
	TreeCounts = api.TreeCounts
	// Visit is one pass of a task through a stage. See [api.Visit] for its fields.
	Visit = api.Visit

	// ListParams narrow a list of tasks. Zero fields are not sent; without a Type, all types are
	// listed. See [api.ListTasksParams] for its fields.
	ListParams = api.ListTasksParams
	// ListOrder is how a list of tasks is ordered: by their submit, or final ones by their ends.
	// See [api.ListTasksParamsOrder] for its values.
	ListOrder = api.ListTasksParamsOrder

	// Stats are the counts of the tasks of one type by status, and the time since when the oldest
	// one is due. See [api.Stats] for its fields.
	Stats = api.Stats
	// Scale is how many tasks the workers of a stage should be able to do at once, and what that
	// comes from. See [api.Scale] for its fields.
	Scale = api.Scale

	// Backlog counts the tasks of a type that are due and wait for the same thing. See
	// [api.Backlog] for its fields.
	Backlog = api.Backlog

	// Rates are tasks a second, over the last minute. See [api.Rates] for its fields.
	Rates = api.Rates

	// StatsHistory is what the tasks of a type, or of all types, did over time. See
	// [api.StatsHistory] for its fields.
	StatsHistory = api.StatsHistory
	// HistoryPoint is what happened in a step of a history. See [api.HistoryPoint] for its fields.
	HistoryPoint = api.HistoryPoint
	// TypePoints is what the tasks of one type did over time. See [api.TypePoints] for its fields.
	TypePoints = api.TypePoints
	// HistoryTimes is how long something took. See [api.HistoryTimes] for its fields.
	HistoryTimes = api.HistoryTimes
	// HistoryMark is something on the time axis of a history. See [api.HistoryMark] for its fields.
	HistoryMark = api.HistoryMark
	// HistorySpan is a time in which nodes recorded. See [api.HistorySpan] for its fields.
	HistorySpan = api.HistorySpan
	// HistoryMarkKind says what a mark is about. See [api.HistoryMarkKind] for its values.
	HistoryMarkKind = api.HistoryMarkKind
	// StatsList is the stats of all types, or of one. See [api.StatsList] for its fields.
	StatsList = api.StatsList

	// NewAlerts sets where alerts are sent, and by which rules. URL and Rules are required. See
	// [api.NewAlerts] for its fields.
	NewAlerts = api.NewAlerts

	// Alerts are the alerts as they were set, and the episodes of rules that fired. See
	// [api.Alerts] for its fields.
	Alerts = api.Alerts

	// AlertRules are the thresholds of alerts; a threshold of zero never fires. See
	// [asyncflow.AlertRules] for its fields.
	AlertRules = asyncflow.AlertRules

	// AlertEpisode is the time during which a rule fires, for one type or endpoint. See
	// [api.AlertEpisode] for its fields.
	AlertEpisode = api.AlertEpisode

	// BlockedKey is a flow key that stands still. See [asyncflow.BlockedKey] for its fields.
	BlockedKey = asyncflow.BlockedKey

	// AlertTask stands for the tasks that an alert is about. See [asyncflow.AlertTask] for its
	// fields.
	AlertTask = asyncflow.AlertTask

	// FiringAlerts are the episodes that go on, and whether alerts are set up. See
	// [api.FiringAlerts] for its fields.
	FiringAlerts = api.FiringAlerts

	// Governance is the background jobs with their last runs, and the nodes. See [api.Governance]
	// for its fields.
	Governance = api.Governance

	// Job is a background job: its timetable, its last run and its next one. See [api.Job] for its
	// fields.
	Job = api.Job

	// Node is a process that serves or dispatches: its roles, version, and whether it is alive. See
	// [api.Node] for its fields.
	Node = api.Node

	// NodeCounts are how many nodes are alive or gone, by role, and their versions. See
	// [api.NodeCounts] for its fields.
	NodeCounts = api.NodeCounts

	// ServerHealth says whether a node can take requests. See [api.Health] for its fields.
	ServerHealth = api.Health

	// Problem is an error of the API by RFC 9457, with the offending fields; see Error. See
	// [api.Problem] for its fields.
	Problem = api.Problem

	// FieldError names a field and its fault. See [api.FieldError] for its fields.
	FieldError = api.FieldError

	// JSON is any JSON value. It is stored and passed on byte by byte. See [api.JSON].
	JSON = api.JSON

	// Duration is a time.Duration that is written as a Go-style string, such as 30s; NewDuration
	// makes one. See [asyncflow.Duration].
	Duration = asyncflow.Duration

	// Retention is how long final tasks and their contents are kept. See [asyncflow.Retention] for
	// its fields.
	Retention = asyncflow.Retention

	// Priority is a head start in seconds: one number, or a list with one for each stage. See
	// [asyncflow.Priority].
	Priority = asyncflow.Priority

	// RetryPolicy says how often a stage is tried, and after which pauses. See
	// [asyncflow.RetryPolicy] for its fields.
	RetryPolicy = asyncflow.RetryPolicy

	// Interval is the pauses between attempts; Seconds and Rule make one. See
	// [asyncflow.Interval].
	Interval = asyncflow.Interval

	// Status is the status of a task, such as StatusPending; see its Final. See [asyncflow.Status].
	Status = asyncflow.Status
)

// The statuses of a task; see asyncflow.Status.
const (
	StatusWaiting   = asyncflow.StatusWaiting
	StatusPending   = asyncflow.StatusPending
	StatusRunning   = asyncflow.StatusRunning
	StatusSucceeded = asyncflow.StatusSucceeded
	StatusFailed    = asyncflow.StatusFailed
	StatusCancelled = asyncflow.StatusCancelled
)

// Poly is the interval of growing pauses with jitter; see asyncflow.Poly.
const Poly = asyncflow.Poly

// NewDuration returns the Duration that lasts as long as d.
func NewDuration(d time.Duration) Duration { return asyncflow.NewDuration(d) }

// Seconds returns an interval of one pause, or of several in turn, in seconds; see Interval.
func Seconds(s ...float64) Interval { return asyncflow.Seconds(s...) }

// Rule returns an interval from a text: Poly, or an expression; see Interval.
func Rule(text string) Interval { return asyncflow.Rule(text) }
