package store

import (
	"time"

	"github.com/asyncflow/asyncflow/store/internal/upkeep"
)

// The words of package upkeep for callers of the store.

type (
	// JobRun is the last recorded run of a background job.
	JobRun = upkeep.JobRun
	// Overview tells the background jobs what a task type needs: the zero time where it needs
	// nothing.
	Overview = upkeep.Overview
	// Tables are tables of a tenant in which rows come and go.
	Tables = upkeep.Tables
	// Ticked says what one round through the schedules of a tenant did.
	Ticked = upkeep.Ticked
)

// ExpireBatch is the most tasks that one transaction of ExpireTasks looks at.
const ExpireBatch = upkeep.ExpireBatch

// IdleEvery is how often all nodes together record a run that had nothing to do.
const IdleEvery = upkeep.IdleEvery

var (
	// TokenTables hold the tokens of tasks, and the rolls.
	TokenTables = upkeep.TokenTables
	TallyTables = upkeep.TallyTables
	KeyTables   = upkeep.KeyTables
	// LifetimeTables say when tasks expire.
	LifetimeTables = upkeep.LifetimeTables
	// PlanTables say what is to be done at some time.
	PlanTables = upkeep.PlanTables
	// FollowUpTables say what transactions left to do, and what tasks depend on.
	FollowUpTables = upkeep.FollowUpTables
	// AlertTables are the tables that alerts are about, besides the configuration.
	AlertTables = upkeep.AlertTables
	// HistoryTables hold what the history is made of, and the alerts that are noted with it.
	HistoryTables = upkeep.HistoryTables
	// RecordTables hold rows that are kept for a while.
	RecordTables = upkeep.RecordTables
)

// NextFold returns when Fold may find something to do again, if it just found nothing and no tally
// is written after the last one; zero: never.
func NextFold(last, now time.Time) time.Time { return upkeep.NextFold(last, now) }
