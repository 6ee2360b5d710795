package config

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// StoredType is a task type with its state and its times.
type StoredType struct {
	asyncflow.TaskType
	PauseState
	CreatedAt, UpdatedAt time.Time
	// AwaitedSince is since when tasks may depend on tasks of the type; zero: none does.
	AwaitedSince time.Time
	// SearchableFrom has the first roll in which all tasks are found by a searchable field, for
	// each of these.
	SearchableFrom map[string]int
}

// Awaited reports whether tasks may depend on tasks of the type.
func (t StoredType) Awaited() bool { return !t.AwaitedSince.IsZero() }

func readTaskTypes(ctx context.Context, q postgres.Querier, tenant string) ([]StoredType, error) {
	rows, _ := q.Query(ctx, TaskTypeColumns+postgres.Quote(schema.Of(tenant))+
		`.task_types ORDER BY name`)
	return pgx.CollectRows(rows, ScanTaskType)
}

// ReadTaskType reads a task type; an unknown one is CodeNotFound. lock is FOR UPDATE, or empty.
func ReadTaskType(
	ctx context.Context, q postgres.Querier, tenant, name, lock string,
) (StoredType, error) {
	rows, _ := q.Query(ctx,
		TaskTypeColumns+postgres.Quote(schema.Of(tenant))+`.task_types WHERE name = $1 `+lock, name)
	t, err := pgx.CollectExactlyOneRow(rows, ScanTaskType)
	if errors.Is(err, pgx.ErrNoRows) {
		return StoredType{}, UnknownType(name)
	}
	return t, postgres.Wrap(err, "readTaskType(%q, %q)", tenant, name)
}

// TaskTypeColumns begins a query of task types.
const TaskTypeColumns = `SELECT name, version, spec, coalesce(stage_mapping, '{}'), paused_at,
	coalesce(pause_reason, ''), resumed_at, coalesce(ramp_seconds, 0), created_at, updated_at,
	awaited_since, CASE WHEN search_from IS NOT NULL AND spec->'searchable' IS NOT NULL
	THEN search_from END FROM `

// ScanTaskType reads a row of TaskTypeColumns.
func ScanTaskType(row pgx.CollectableRow) (t StoredType, err error) {
	var spec []byte
	var paused, resumed, awaited *time.Time
	var ramp float64
	if err := row.Scan(&t.Name, &t.Version, &spec, &t.StageMapping, &paused, &t.PauseReason,
		&resumed, &ramp, &t.CreatedAt, &t.UpdatedAt, &awaited,
		&t.SearchableFrom); err != nil {
		return t, err
	}
	t.PausedAt = postgres.OrZero(paused)
	t.ResumedAt = postgres.OrZero(resumed)
	t.AwaitedSince = postgres.OrZero(awaited)
	t.Ramp = time.Duration(ramp * float64(time.Second))
	name := t.Name
	version := t.Version
	err = json.Unmarshal(spec, &t.TaskType)
	t.Name = name
	t.Version = version
	t.TaskType = t.TaskType.WithDefaults() // for fields that older versions didn't have
	return t, err
}
