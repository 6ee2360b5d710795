package checkup

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// schemas finds schemas that are behind this program.
func (c *checkup) schemas(ctx context.Context, f *findings) error {
	all, err := schema.Statuses(ctx, c.url)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Version < s.Latest {
			f.add(LevelProblem, "asyncflow migrate up", "the schema %s is at version %d of %d",
				s.Schema, s.Version, s.Latest)
		}
		if s.Version > s.Latest {
			f.add(LevelNote, "run doctor with the newest program",
				"the schema %s is at version %d, and this program knows %d", s.Schema, s.Version,
				s.Latest)
		}
	}
	return nil
}

// roles finds roles and grants that are missing, without which tenants aren't kept apart.
func (c *checkup) roles(ctx context.Context, f *findings) error {
	var made bool
	err := c.conn.QueryRow(ctx, `SELECT base_role IS NOT NULL FROM asyncflow.fence`).Scan(&made)
	if err != nil {
		return err
	}
	if !made || c.noRoles {
		f.add(LevelNote, "asyncflow migrate up, without --database-roles=off",
			"database roles are off: only asyncflow itself keeps tenants apart")
	}
	gaps, err := schema.Gaps(ctx, c.url, c.noRoles)
	for _, gap := range gaps {
		f.addFor(gap.Tenant, LevelProblem, gap.Do, "%s", gap.Text)
	}
	return err
}

// silent is how long a node that is alive never is.
const silent = time.Minute

// nodes finds nodes that are gone, and work that no node does.
func (c *checkup) nodes(ctx context.Context, f *findings) error {
	rows, _ := c.conn.Query(ctx, `SELECT id, roles, version, seen_at, clock_timestamp()
		FROM asyncflow.nodes ORDER BY id`)
	var id, roles, version string
	var seen, now time.Time
	done := map[string]bool{}
	var versions []string
	_, err := pgx.ForEachRow(rows, []any{&id, &roles, &version, &seen, &now}, func() error {
		if now.Sub(seen) > silent {
			f.add(LevelWarning, "start it again, or ignore it: its row goes after a day",
				"the node %s was seen %s and not stopped properly", id, ago(now, seen))
			return nil
		}
		for _, role := range strings.Split(roles, ",") {
			done[role] = true
		}
		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
		return nil
	})
	for _, role := range []string{"api", "dispatcher", "governance"} {
		if err == nil && !done[role] {
			f.add(LevelProblem, "start a node with this role", "no node has the role %s", role)
		}
	}
	if len(versions) > 1 {
		f.add(LevelNote, "end the upgrade: features of the newest wait for all nodes",
			"nodes run different versions: %s", strings.Join(versions, ", "))
	}
	return err
}

// jobLate is how long ago each background job succeeded at least: all run once a day or more
// often.
const jobLate = 25 * time.Hour

// jobs finds background jobs that fail, or haven't run.
func (c *checkup) jobs(ctx context.Context, f *findings) error {
	rows, _ := c.conn.Query(ctx, `SELECT name, left(coalesce(error, ''), 300), failures,
		coalesce(succeeded_at, 'epoch'), clock_timestamp()
		FROM asyncflow.jobs WHERE spec <> 'off' AND (error IS NOT NULL
		  OR succeeded_at < clock_timestamp() - $1::interval) ORDER BY name`, jobLate)
	var name, text string
	var failures int
	var succeeded, now time.Time
	_, err := pgx.ForEachRow(rows, []any{&name, &text, &failures, &succeeded, &now}, func() error {
		if text != "" {
			f.add(LevelWarning, "asyncflow governance run "+name, "the job %s has failed %d times "+
				"in a row: %s", name, failures, text)
		} else {
			f.add(LevelWarning, "asyncflow governance run "+name,
				"the job %s last succeeded %s", name, ago(now, succeeded))
		}
		return nil
	})
	return err
}
