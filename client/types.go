package client

import (
	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// The documents of the API, under one roof: a program that uses this package
// needs to import no other.
type (
	NewTask       = api.NewTask
	SubmittedTask = api.SubmittedTask
	Task          = api.Task
	TaskList      = api.TaskList
	TaskPatch     = api.TaskPatch
	Attempt       = api.Attempt
	AttemptList   = api.AttemptList

	AuditEntry   = api.AuditEntry
	AuditList    = api.AuditList
	AuditOutcome = api.AuditOutcome

	TaskType     = api.TaskType
	TaskTypeSpec = api.TaskTypeSpec
	TaskTypeList = api.TaskTypeList
	Stage        = api.Stage

	NewEndpoint    = api.NewEndpoint
	Endpoint       = api.Endpoint
	EndpointList   = api.EndpointList
	EndpointPatch  = api.EndpointPatch
	EndpointSecret = api.EndpointSecret
	EndpointHealth = api.EndpointHealth
	EndpointAuth   = asyncflow.EndpointAuth
	EndpointBatch  = api.EndpointBatch
	EndpointTLS    = asyncflow.EndpointTLS
	SecretRotation = api.SecretRotation

	// BulkCancellation and BulkRedrive say which tasks to cancel or redrive. Type is
	// required; what is zero is left out. DryRun is set by the methods.
	BulkCancellation = api.BulkCancellation
	BulkRedrive      = api.BulkRedrive
	Operation        = api.Operation
	OperationList    = api.OperationList
	OperationState   = api.OperationState

	Tenant       = api.Tenant
	NewTenant    = api.NewTenant
	TenantList   = api.TenantList
	TenantPatch  = api.TenantPatch
	Quotas       = api.Quotas
	QuotaChanges = api.QuotaChanges
	QuotaUsage   = api.QuotaUsage
	QuotaList    = api.QuotaList

	Schedule     = api.Schedule
	ScheduleSpec = api.ScheduleSpec
	ScheduleList = api.ScheduleList

	// ListParams narrow a list of tasks. Type is required; what is zero is not
	// sent.
	ListParams = api.ListTasksParams

	Stats     = api.Stats
	Backlog   = api.Backlog // tasks of a type that are due and wait for the same
	Rates     = api.Rates
	StatsList = api.StatsList

	NewAlerts    = api.NewAlerts
	Alerts       = api.Alerts
	AlertRules   = asyncflow.AlertRules
	AlertEpisode = api.AlertEpisode

	Governance = api.Governance
	Job        = api.Job
	Node       = api.Node

	ServerHealth = api.Health
	Problem      = api.Problem
	FieldError   = api.FieldError

	JSON        = api.JSON
	Duration    = asyncflow.Duration
	Priority    = asyncflow.Priority
	RetryPolicy = asyncflow.RetryPolicy
	Interval    = asyncflow.Interval
	Status      = asyncflow.Status
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
