package settings

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	// VersionsKept is how many earlier versions of a task type are kept.
	VersionsKept = 100
	// VersionBytes is how many bytes the kept versions of a type have together.
	VersionBytes = 1 << 20
)

// AppliedVersion says when a version of a task type was applied, and whether it is the present one.
type AppliedVersion struct {
	Version   int
	AppliedAt time.Time
	Current   bool
}

// TypeVersion is a version of a task type as it was applied.
type TypeVersion struct {
	Type asyncflow.TaskType
	AppliedVersion
}

// keepVersion keeps the present version of a type, which is about to be replaced. A type of that
// name that was deleted by a node of the version before may have left rows of later versions.
func keepVersion(ctx context.Context, tx pgx.Tx, tenant, name string) error {
	b := &pgx.Batch{}
	tables := config.NewTables(tenant, config.SharedSet)
	b.Queue(tables.SQL(0, `
		INSERT INTO {type_versions} (name, version, spec, stage_mapping, applied_at)
		SELECT name, version, spec, stage_mapping, updated_at FROM {types} WHERE name = $1
		ON CONFLICT (name, version) DO UPDATE SET spec = excluded.spec,
		  stage_mapping = excluded.stage_mapping, applied_at = excluded.applied_at`), name)
	b.Queue(tables.SQL(0, `
		DELETE FROM {type_versions} v USING (
		  SELECT version, row_number() OVER w AS place,
		    sum(octet_length(spec::text) + coalesce(octet_length(stage_mapping::text), 0))
		      OVER w AS bytes
		  FROM {type_versions} WHERE name = $1 WINDOW w AS (ORDER BY version DESC)) k,
		  {types} t
		WHERE v.name = $1 AND t.name = $1 AND v.version = k.version
		  AND (k.place > $2 OR k.bytes > $3 OR v.version > t.version)`), name, VersionsKept,
		VersionBytes)
	return tx.SendBatch(ctx, b).Close()
}

// allVersions are the versions of the type $1, with the present one. A deleted type has none.
const allVersions = ` FROM (
	  SELECT version, updated_at AS applied_at, true AS current, spec, stage_mapping
	  FROM {types} WHERE name = $1
	  UNION ALL
	  SELECT v.version, v.applied_at, false, v.spec, v.stage_mapping
	  FROM {type_versions} v JOIN {types} t ON t.name = v.name
	  WHERE v.name = $1 AND v.version < t.version) a `

// TypeVersions returns the present version of a type and the kept ones before it, newest first.
// An unknown type is CodeNotFound.
func (s *types) TypeVersions(
	ctx context.Context, tenant, name string,
) ([]AppliedVersion, error) {
	rows, _ := s.core.DB(tenant).Query(ctx, config.NewTables(tenant, config.SharedSet).SQL(0,
		`SELECT version, applied_at, current`+allVersions+`ORDER BY version DESC LIMIT $2`), name,
		VersionsKept+1)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[AppliedVersion])
	if err == nil && len(all) == 0 {
		err = config.UnknownType(name)
	}
	return all, postgres.Wrap(err, "TypeVersions(%q, %q)", tenant, name)
}

// TypeVersion returns a version of a type. CodeNotFound says that there is no such type or version,
// or that the version isn't kept.
func (s *types) TypeVersion(
	ctx context.Context, tenant, name string, version int,
) (v TypeVersion, err error) {
	var spec []byte
	db := s.core.DB(tenant)
	err = db.QueryRow(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		SELECT version, applied_at, current, spec, coalesce(stage_mapping, '{}')`+allVersions+
		`WHERE version = $2`), name, version).
		Scan(&v.Version, &v.AppliedAt, &v.Current, &spec, &v.Type.StageMapping)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, s.noVersion(ctx, tenant, name, version)
	}
	if err != nil {
		return v, postgres.Wrap(err, "TypeVersion(%q, %q, %d)", tenant, name, version)
	}
	if err = json.Unmarshal(spec, &v.Type); err != nil {
		return v, postgres.Wrap(err, "TypeVersion(%q, %q, %d)", tenant, name, version)
	}
	v.Type = v.Type.WithDefaults() // for fields that older programs didn't have
	v.Type.Name, v.Type.Version = name, version
	return v, nil
}

// noVersion returns why a version can't be read.
func (s *types) noVersion(ctx context.Context, tenant, name string, version int) error {
	t, err := s.TaskType(ctx, tenant, name)
	if err != nil {
		return err
	}
	if version > t.Version {
		return asyncflow.Errorf(asyncflow.CodeNotFound, "task type %s has no version %d: its "+
			"present version is %d", name, version, t.Version)
	}
	return asyncflow.Errorf(asyncflow.CodeNotFound, "version %d of task type %s isn't kept: "+
		"asyncflow keeps the latest %d before the present one (%d), up to 1 MiB", version, name,
		VersionsKept, t.Version)
}
