package client

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// The documents of the API, under one roof: a program that uses this package needs to
// import no other.
type (
	// NewTask is a task to submit. Type and Context are required; what is zero is left out.
	// Key makes the submit idempotent, RunAt or Delay sets a time, Priority and Retry take the
	// place of the stages' own. Its fields are those of [api.NewTask].
	NewTask = api.NewTask

	// SubmittedTask is the answer to a submit: the task's ID, and where it stands. Existing
	// reports whether Key stood for it already; then OrderTime may be zero. Its fields are
	// those of [api.SubmittedTask].
	SubmittedTask = api.SubmittedTask

	// Task is a task as it stands: its status, stage and attempt, its Context, and, once it
	// has succeeded, its Result. Its fields are those of [api.Task].
	Task = api.Task

	// TaskList is a page of tasks, without their contexts and results, and the cursor of the
	// next one. Its fields are those of [api.TaskList].
	TaskList = api.TaskList

	// TaskPatch changes when a task runs: by Priority, RunAt or Delay. What is zero stays. Its
	// fields are those of [api.TaskPatch].
	TaskPatch = api.TaskPatch

	// Attempt is an entry of a task's journal: how an attempt ended, or what else was done to
	// the task. Its fields are those of [api.Attempt].
	Attempt = api.Attempt

	// AttemptList is a page of the journal of a task, oldest first, and the cursor of the next
	// one. Its fields are those of [api.AttemptList].
	AttemptList = api.AttemptList

	// AuditEntry says who did what, when, from where, and what came of it. Its fields are
	// those of [api.AuditEntry].
	AuditEntry = api.AuditEntry

	// AuditList is a page of the audit, newest first, and the cursor of the next one. Its
	// fields are those of [api.AuditList].
	AuditList = api.AuditList

	// AuditOutcome says what came of a call: AuditDone and the like. See [api.AuditOutcome].
	AuditOutcome = api.AuditOutcome

	// TaskType is a task type as it was last applied, with its version and its defaults filled
	// in. Its fields are those of [api.TaskType].
	TaskType = api.TaskType

	// TaskTypeSpec is a task type to apply. Stages is required, with a name for each; what is
	// zero has its default. Its fields are those of [api.TaskTypeSpec].
	TaskTypeSpec = api.TaskTypeSpec

	// TaskTypeList is a page of the task types of the tenant, by name, and the cursor of the
	// next one. Its fields are those of [api.TaskTypeList].
	TaskTypeList = api.TaskTypeList

	// Stage is one step of a task type. Name is required; what is zero has its default. Its
	// fields are those of [api.Stage].
	Stage = api.Stage

	// NewEndpoint registers the URL of a worker for a stage. Type, Stage and URL are required;
	// what is zero is left out. Without a Secret one is made, and returned once. MaxInFlight,
	// Rate and Weight limit and share deliveries; Headers, Auth and TLS are what deliveries
	// carry; Batch has several tasks in one request. Its fields are those of
	// [api.NewEndpoint].
	NewEndpoint = api.NewEndpoint

	// Endpoint is a registered URL with its limits, health and verification. Its Secret is set
	// only in the answer that made it. Its fields are those of [api.Endpoint].
	Endpoint = api.Endpoint

	// EndpointList is a page of the endpoints of the tenant, or of a type, and the cursor of the
	// next one. Its fields are those of [api.EndpointList].
	EndpointList = api.EndpointList

	// EndpointPatch changes an endpoint. What is nil stays. Its fields are those of
	// [api.EndpointPatch].
	EndpointPatch = api.EndpointPatch

	// EndpointSecret is one of the secrets that sign deliveries to an endpoint, without the
	// secret itself. Its fields are those of [api.EndpointSecret].
	EndpointSecret = api.EndpointSecret

	// EndpointHealth says how an endpoint is doing, and why it gets no deliveries, if it gets
	// none. Its fields are those of [api.EndpointHealth].
	EndpointHealth = api.EndpointHealth

	// EndpointAuth is how asyncflow logs in at an endpoint: a bearer token, basic, or OAuth
	// 2.0 client credentials. Its fields are those of [asyncflow.EndpointAuth].
	EndpointAuth = asyncflow.EndpointAuth

	// EndpointBatch has an endpoint get several tasks in one request: at most MaxTasks, of
	// which none waits for others for longer than MaxWait. Its fields are those of
	// [api.EndpointBatch].
	EndpointBatch = api.EndpointBatch

	// EndpointTLS are the certificates of deliveries to an endpoint, in PEM. Its fields are
	// those of [asyncflow.EndpointTLS].
	EndpointTLS = asyncflow.EndpointTLS

	// SecretRotation says how to replace the secret of an endpoint, and for how long the old
	// one signs beside it. Its fields are those of [api.SecretRotation].
	SecretRotation = api.SecretRotation

	// BulkCancellation says which tasks to cancel. Type is required; what is zero is left out.
	// DryRun is set by the methods. Its fields are those of [api.BulkCancellation].
	BulkCancellation = api.BulkCancellation

	// BulkRedrive says which tasks to set going again. Type is required; what is zero is left
	// out. DryRun is set by the methods. Its fields are those of [api.BulkRedrive].
	BulkRedrive = api.BulkRedrive

	// Operation cancels or redrives many tasks in the background: how far it is, and whether
	// it has ended. Its fields are those of [api.Operation].
	Operation = api.Operation

	// OperationList is a page of the operations that run and those of the last 30 days, newest
	// first, and the cursor of the next one. Its fields are those of [api.OperationList].
	OperationList = api.OperationList

	// OperationState says whether an operation runs or how it has ended: OperationRunning and
	// the like. See [api.OperationState].
	OperationState = api.OperationState

	// Tenant is a tenant with its quotas and its state. Its fields are those of [api.Tenant].
	Tenant = api.Tenant

	// NewTenant is a tenant to make. Slug, its name, is required. Its fields are those of
	// [api.NewTenant].
	NewTenant = api.NewTenant

	// TenantList is a page of tenants, by name, and the cursor of the next one. Its fields are
	// those of [api.TenantList].
	TenantList = api.TenantList

	// TenantPatch changes the quotas of a tenant, suspends or resumes it. What is nil stays.
	// Its fields are those of [api.TenantPatch].
	TenantPatch = api.TenantPatch

	// Quotas are the limits of a tenant, as they were set. Its fields are those of
	// [api.Quotas].
	Quotas = api.Quotas

	// QuotaChanges are quotas to set: -1 is no limit, 0 the operator's default, nil as it is.
	// Its fields are those of [api.QuotaChanges].
	QuotaChanges = api.QuotaChanges

	// QuotaUsage is one quota with how much of it is in use. Its fields are those of
	// [api.QuotaUsage].
	QuotaUsage = api.QuotaUsage

	// QuotaList is all quotas of the tenant, also those without a limit. Its fields are those
	// of [api.QuotaList].
	QuotaList = api.QuotaList

	// Schedule is a recurring task as it was last applied, with its next runs. Its fields are
	// those of [api.Schedule].
	Schedule = api.Schedule

	// ScheduleSpec is a recurring task to apply. Type, Context, and Cron or Every are
	// required; what is zero has its default. Its fields are those of [api.ScheduleSpec].
	ScheduleSpec = api.ScheduleSpec

	// ScheduleList is a page of the schedules of the tenant by name, without their contexts, and
	// the cursor of the next one. Its fields are those of [api.ScheduleList].
	ScheduleList = api.ScheduleList

	// ListParams narrow a list of tasks. Type is required; what is zero is not sent. Its
	// fields are those of [api.ListTasksParams].
	ListParams = api.ListTasksParams

	// Stats counts the tasks of one type by where they stand, and says since when the first
	// one has been due. Its fields are those of [api.Stats].
	Stats = api.Stats

	// Backlog counts the tasks of a type that are due and wait for the same thing. Its fields
	// are those of [api.Backlog].
	Backlog = api.Backlog

	// Rates are tasks a second, over the last minute. Its fields are those of [api.Rates].
	Rates = api.Rates

	// StatsList is the stats of all types, or of one. Its fields are those of [api.StatsList].
	StatsList = api.StatsList

	// NewAlerts says where alerts go, and by which rules. URL and Rules are required. Its
	// fields are those of [api.NewAlerts].
	NewAlerts = api.NewAlerts

	// Alerts are the alerts as they were set, and the episodes of rules that have fired. Its
	// fields are those of [api.Alerts].
	Alerts = api.Alerts

	// AlertRules are the thresholds of alerts; what is zero never fires. Its fields are those
	// of [asyncflow.AlertRules].
	AlertRules = asyncflow.AlertRules

	// AlertEpisode is the time for which a rule has fired, for one type or endpoint. Its
	// fields are those of [api.AlertEpisode].
	AlertEpisode = api.AlertEpisode

	// Governance is the background jobs with their last runs, and the nodes. Its fields are
	// those of [api.Governance].
	Governance = api.Governance

	// Job is a background job: its timetable, its last run and its next one. Its fields are
	// those of [api.Job].
	Job = api.Job

	// Node is a process that serves or dispatches: its roles, version, and whether it is
	// alive. Its fields are those of [api.Node].
	Node = api.Node

	// ServerHealth is the answer to whether a node can take requests. Its fields are those of
	// [api.Health].
	ServerHealth = api.Health

	// Problem is an error of the API as RFC 9457 has it, with the offending fields; see Error.
	// Its fields are those of [api.Problem].
	Problem = api.Problem

	// FieldError names a field, and says what is wrong with it. Its fields are those of
	// [api.FieldError].
	FieldError = api.FieldError

	// JSON is any JSON value. It is stored and passed on byte by byte. See [api.JSON].
	JSON = api.JSON

	// Duration is a time.Duration that is written as a Go-style string, such as 30s. See
	// [asyncflow.Duration].
	Duration = asyncflow.Duration

	// Priority is a head start in seconds: one number, or a list with one for each stage. See
	// [asyncflow.Priority].
	Priority = asyncflow.Priority

	// RetryPolicy says how often a stage is tried, and after which pauses. Its fields are
	// those of [asyncflow.RetryPolicy].
	RetryPolicy = asyncflow.RetryPolicy

	// Interval is the pauses between attempts; Seconds and Rule make one. See
	// [asyncflow.Interval].
	Interval = asyncflow.Interval

	// Status says where a task stands: StatusPending and the like; see its Final. See
	// [asyncflow.Status].
	Status = asyncflow.Status
)

// Where a task may stand; see asyncflow.Status.
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

// Seconds returns the interval of a number, or of a list of several; see Interval.
func Seconds(s ...float64) Interval { return asyncflow.Seconds(s...) }

// Rule returns the interval of a text: Poly, or an expression; see Interval.
func Rule(text string) Interval { return asyncflow.Rule(text) }
