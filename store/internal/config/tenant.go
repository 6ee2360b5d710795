package config

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// StoredTenant is a tenant as its row has it.
type StoredTenant struct {
	Slug          string
	Own           asyncflow.Quotas // 0: the operator's default applies
	SuspendedAt   time.Time        // zero: it is not suspended by an operator
	SuspendReason string
	DeletedAt     time.Time // zero: it is not deleted
	DropAt        time.Time // when a deleted tenant is dropped
	DroppingAt    time.Time // when the drop began; zero: it can still be restored
	TokensFrom    time.Time // tokens issued before belong to an earlier tenant; zero: none do
	CreatedAt     time.Time
}

// State returns the tenant's state.
func (t StoredTenant) State() asyncflow.TenantState {
	switch {
	case !t.DroppingAt.IsZero():
		return asyncflow.TenantDropping
	case !t.DeletedAt.IsZero():
		return asyncflow.TenantDeleted
	case !t.SuspendedAt.IsZero():
		return asyncflow.TenantSuspended
	}
	return asyncflow.TenantActive
}

// Refusal returns why calls of the tenant are refused: CodeSuspended; nil, if they aren't.
func (t StoredTenant) Refusal() error {
	switch t.State() {
	case asyncflow.TenantActive:
		return nil
	case asyncflow.TenantSuspended:
		message := "the tenant " + t.Slug + " is suspended"
		if t.SuspendReason != "" {
			message += ": " + t.SuspendReason
		}
		return asyncflow.Errorf(asyncflow.CodeSuspended, "%s", message)
	}
	return asyncflow.Errorf(asyncflow.CodeSuspended, "the tenant %s was deleted", t.Slug)
}

// Tenant is a tenant as this node knows it: an immutable snapshot.
type Tenant struct {
	StoredTenant
	Suspended bool             // or deleted: its calls are refused, and none of its tasks is leased
	Quotas    asyncflow.Quotas // the ones that apply; 0: no limit
}

// TenantColumns are the columns that ScanTenant reads.
const TenantColumns = `slug, quotas, suspended_at, coalesce(suspend_reason, ''), deleted_at,
	drop_at, dropping_at, tokens_from, created_at`

// ScanTenant reads a row of TenantColumns.
func ScanTenant(row pgx.CollectableRow) (t StoredTenant, err error) {
	var quotas []byte
	var suspended, deleted, drop, dropping, tokens *time.Time
	if err := row.Scan(&t.Slug, &quotas, &suspended, &t.SuspendReason, &deleted, &drop, &dropping,
		&tokens, &t.CreatedAt); err != nil {
		return t, err
	}
	t.SuspendedAt = postgres.OrZero(suspended)
	t.DeletedAt = postgres.OrZero(deleted)
	t.DropAt = postgres.OrZero(drop)
	t.DroppingAt = postgres.OrZero(dropping)
	t.TokensFrom = postgres.OrZero(tokens)
	return t, json.Unmarshal(quotas, &t.Own)
}

// UnknownTenant is the error for a tenant that doesn't exist.
func UnknownTenant(slug string) error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "there is no tenant %s", slug)
}

// ReadTenant reads a tenant; an unknown one is CodeNotFound. lock is FOR UPDATE, or empty.
func ReadTenant(ctx context.Context, q postgres.Querier, slug, lock string) (StoredTenant, error) {
	rows, _ := q.Query(ctx, `SELECT `+TenantColumns+` FROM asyncflow.tenants
		WHERE slug = $1 `+lock,
		slug)
	t, err := pgx.CollectExactlyOneRow(rows, ScanTenant)
	if errors.Is(err, pgx.ErrNoRows) {
		err = UnknownTenant(slug)
	}
	return t, err
}
