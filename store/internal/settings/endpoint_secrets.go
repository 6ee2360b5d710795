package settings

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Seals counts the sealed values of a tenant's endpoints, and the values sealed by another key
// than the one that sealedBy names.
func (s *endpoints) Seals(
	ctx context.Context, tenant string, sealedBy []byte,
) (all, others int, err error) {
	err = s.core.DB(tenant).QueryRow(ctx,
		`SELECT count(*), count(*) FILTER (WHERE substr(sealed, 1, $2) <> $1)
		FROM (SELECT sealed FROM `+config.EndpointSecretsOf(tenant)+` UNION ALL
		  SELECT outbound FROM `+config.EndpointsOf(tenant)+`
		  WHERE outbound IS NOT NULL) a (sealed)`,
		sealedBy, len(sealedBy)).Scan(&all, &others)
	return all, others, postgres.Wrap(err, "Seals(%q)", tenant)
}

// resealBatch is how many endpoints are sealed again in one transaction.
const resealBatch = 100

// Reseal calls again for the next endpoints by id that have a value sealed by another key than
// the one that sealedBy names, and writes them; begin with after "". It returns the id of the
// last endpoint ("" when there were none) and how many it wrote. It returns the errors of again
// together: each leaves its endpoint as it is, and doesn't affect the rest.
func (s *endpoints) Reseal(
	ctx context.Context, tenant, after string, sealedBy []byte,
	again func(*asyncflow.Endpoint) error,
) (last string, done int, err error) {
	var failed []error
	if after == "" {
		after = "00000000-0000-0000-0000-000000000000"
	}
	err = audit.Change(ctx, s.core, tenant, func(tx pgx.Tx) error {
		all, err := lockEndpoints(ctx, tx, tenant, `id IN (
			SELECT id FROM `+config.EndpointsOf(tenant)+` e
			WHERE id > $1::uuid AND (substr(outbound, 1, $3) <> $2
			  OR EXISTS (SELECT FROM `+config.EndpointSecretsOf(tenant)+` s
			      WHERE s.endpoint = e.id AND substr(s.sealed, 1, $3) <> $2))
			ORDER BY id LIMIT $4)`, after, sealedBy, len(sealedBy), resealBatch)
		if err == nil && len(all) == 0 {
			err = postgres.ErrSame
		}
		if err != nil {
			return err
		}
		for _, e := range all {
			last = e.ID
			if err := again(&e); err != nil {
				failed = append(failed, err)
				continue
			}
			if err := s.writeEndpoint(ctx, tx, tenant, e); err != nil {
				return err
			}
			done++
		}
		return nil
	})
	if errors.Is(err, postgres.ErrSame) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, postgres.Wrap(err, "Reseal(%q)", tenant)
	}
	return last, done, errors.Join(failed...)
}

// ForgetSecrets deletes a tenant's expired signing secrets, and returns how many it deleted.
func (s *endpoints) ForgetSecrets(ctx context.Context, tenant string) (int, error) {
	tag, err := s.core.DB(tenant).Exec(ctx,
		`DELETE FROM `+config.EndpointSecretsOf(tenant)+` WHERE expires_at < $1`,
		s.core.Clock.Now())
	return int(tag.RowsAffected()), postgres.Wrap(err, "ForgetSecrets(%q)", tenant)
}

// DryRunForgetSecrets counts the secrets that ForgetSecrets would delete.
func (s *endpoints) DryRunForgetSecrets(ctx context.Context, tenant string) (int, error) {
	return postgres.CountRows(ctx, s.core.DB(tenant),
		`SELECT count(*) FROM `+config.EndpointSecretsOf(tenant)+` WHERE expires_at < $1`,
		s.core.Clock.Now())
}
