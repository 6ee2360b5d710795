package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// CreateEndpoint registers an endpoint for a stage of a task type. An unknown
// type or stage is CodeNotFound.
func (s *Store) CreateEndpoint(ctx context.Context, tenant string, e asyncflow.Endpoint) (asyncflow.Endpoint, error) {
	e.CreatedAt = s.Clock.Now()
	err := s.change(ctx, tenant, func(tx pgx.Tx) error {
		t, err := readTaskType(ctx, tx, tenant, e.Type, "FOR SHARE")
		if err != nil {
			return err
		}
		if t.StageIndex(e.Stage) < 0 {
			return &asyncflow.Error{Code: asyncflow.CodeNotFound, Message: "task type " + e.Type + " has no stage " + e.Stage,
				Fields: []asyncflow.FieldError{{Field: "stage", Message: "is not a stage of " + e.Type}}}
		}
		_, err = tx.Exec(ctx, `INSERT INTO `+quote(schemaOf(tenant))+`.endpoints (id, type, stage, url, secret, created_at)
			VALUES ($1, $2, $3, $4, $5, $6)`, e.ID, e.Type, e.Stage, e.URL, e.Secret, e.CreatedAt)
		return err
	})
	return e, wrap(err, "CreateEndpoint(%q, %q, %q)", tenant, e.Type, e.Stage)
}

// Endpoints returns a tenant's endpoints, of one task type or (taskType "") of
// all, by type, stage and age.
func (s *Store) Endpoints(ctx context.Context, tenant, taskType string) ([]asyncflow.Endpoint, error) {
	rows, err := s.of(tenant).Query(ctx, `SELECT id::text, type, stage, url, secret, created_at
		FROM `+quote(schemaOf(tenant))+`.endpoints
		WHERE $1 IN ('', type) ORDER BY type, stage, created_at, id`, taskType)
	if err != nil {
		return nil, wrap(err, "Endpoints(%q)", tenant)
	}
	all, err := pgx.CollectRows(rows, scanEndpoint)
	if err == nil && len(all) > 0 {
		err = s.readHealth(ctx, tenant, all)
	}
	return all, wrap(err, "Endpoints(%q)", tenant)
}

// Endpoint returns one endpoint; CodeNotFound when there is none.
func (s *Store) Endpoint(ctx context.Context, tenant, id string) (asyncflow.Endpoint, error) {
	rows, err := s.of(tenant).Query(ctx, `SELECT id::text, type, stage, url, secret, created_at
		FROM `+quote(schemaOf(tenant))+`.endpoints WHERE id = $1::uuid`, id)
	if err != nil {
		return asyncflow.Endpoint{}, wrap(err, "Endpoint(%q, %q)", tenant, id)
	}
	e, err := pgx.CollectExactlyOneRow(rows, scanEndpoint)
	if err == pgx.ErrNoRows {
		return e, unknownEndpoint(id)
	}
	if err != nil {
		return e, wrap(err, "Endpoint(%q, %q)", tenant, id)
	}
	one := []asyncflow.Endpoint{e}
	err = s.readHealth(ctx, tenant, one)
	return one[0], wrap(err, "Endpoint(%q, %q)", tenant, id)
}

func scanEndpoint(row pgx.CollectableRow) (e asyncflow.Endpoint, err error) {
	return e, row.Scan(&e.ID, &e.Type, &e.Stage, &e.URL, &e.Secret, &e.CreatedAt)
}

// DeleteEndpoint deletes an endpoint; CodeNotFound when there is none.
func (s *Store) DeleteEndpoint(ctx context.Context, tenant, id string) error {
	err := s.change(ctx, tenant, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `DELETE FROM `+quote(schemaOf(tenant))+`.endpoints WHERE id = $1::uuid`, id)
		if err == nil && tag.RowsAffected() == 0 {
			return unknownEndpoint(id)
		}
		return err
	})
	return wrap(err, "DeleteEndpoint(%q, %q)", tenant, id)
}

func unknownEndpoint(id string) error {
	return asyncflow.Errorf(asyncflow.CodeNotFound, "there is no endpoint %q", id)
}
