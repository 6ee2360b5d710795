package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/store"
)

// governanceCmd shows and runs the background jobs, directly in the database.
type governanceCmd struct {
	Status governanceStatusCmd `cmd:"" help:"Show the nodes, and each job with its last run."`
	Run    governanceRunCmd    `cmd:"" help:"Run a job once, now, or show what it would do."`
}

// withGovernor opens the database for a command.
func withGovernor(
	ctx context.Context, db databaseFlag, cfg governance.Config,
	do func(*store.Store, *governance.Governor) error,
) error {
	return withStore(ctx, db, asyncflow.Quotas{}, func(s *store.Store) error {
		committer := dispatcher.NewCommitter(s, nil)
		defer committer.Close()
		g, err := governance.New(s, committer, cfg)
		if err != nil {
			return err
		}
		return do(s, g.ByHand())
	})
}

type governanceStatusCmd struct{ databaseFlag }

func (c *governanceStatusCmd) Help() string {
	return `Runs that moved rows or failed are recorded within 5 s. Of idle runs, about one a minute is
recorded, for all nodes together. FAILURES counts the failed runs since the last successful one.
NEXT is empty if the job is off or no node runs it.

Example:

    asyncflow governance status -o json | jq -r '.jobs[] | select(.outcome == "failed") | .name'`
}

// Run shows the nodes and the jobs.
func (c *governanceStatusCmd) Run(ctx context.Context, g *globals) error {
	return withGovernor(ctx, c.databaseFlag, governance.Config{},
		func(s *store.Store, _ *governance.Governor) error {
			status, err := governance.ReadStatus(ctx, s)
			return g.printGovernance(httpapi.GovernanceOut(status), err)
		})
}

func (g *globals) printGovernance(doc api.Governance, err error) error {
	if done, err := g.asDocument(doc, err); done {
		return err
	}
	nodes := make([][]string, len(doc.Nodes))
	for i, n := range doc.Nodes {
		nodes[i] = []string{n.ID, strings.Join(n.Roles, ","), n.Version, timeText(n.StartedAt),
			timeText(n.SeenAt), string(n.State)}
	}
	if err := g.printTable("NODE ROLES VERSION STARTED SEEN STATE", nodes); err != nil {
		return err
	}
	fmt.Fprintln(g.stdout)
	jobs := make([][]string, len(doc.Jobs))
	for i, j := range doc.Jobs {
		took, rows := "", ""
		if !j.StartedAt.IsZero() {
			took = milliseconds(j.DurationMs).String()
			rows = number(j.Rows)
		}
		outcome := string(j.Outcome)
		if j.Error != "" {
			outcome += ": " + j.Error
		}
		jobs[i] = []string{j.Name, j.Schedule, timeText(j.StartedAt), j.Node, took, rows,
			number(int64(j.Failures)), timeText(j.NextAt), outcome}
	}
	return g.printTable("JOB SCHEDULE LAST NODE TOOK ROWS FAILURES NEXT OUTCOME", jobs)
}

func milliseconds(ms float32) time.Duration {
	return time.Duration(float64(ms) * float64(time.Millisecond)).Round(time.Millisecond / 10)
}

type governanceRunCmd struct {
	databaseFlag
	Job    string `arg:"" help:"Name of the job: see asyncflow governance status."`
	DryRun bool   `help:"Only count the rows that it would move, by type."`

	AuditRetention time.Duration `env:"ASYNCFLOW_AUDIT_RETENTION"`
}

func (c *governanceRunCmd) Help() string {
	return `This is safe at any time: the job skips what another node is working on.

Example:

    asyncflow governance run rescue --dry-run`
}

// Run runs the job, or shows what it would do.
func (c *governanceRunCmd) Run(ctx context.Context, g *globals) error {
	if c.AuditRetention != 0 {
		if err := checkRetention(c.AuditRetention); err != nil {
			return usageError(err)
		}
	}
	cfg := governance.Config{AuditRetention: c.AuditRetention}
	return withGovernor(ctx, c.databaseFlag, cfg,
		func(_ *store.Store, gov *governance.Governor) error {
			job, err := gov.Job(c.Job)
			if err != nil {
				return usageError(err)
			}
			if c.DryRun {
				return g.dryRun(ctx, job)
			}
			b := auditedCommand{url: c.DatabaseURL, action: "governance.run", objectType: "job",
				object: job.Name,
				detail: map[string]any{}}
			var run store.JobRun
			err = b.do(ctx, func() error {
				run, err = gov.RunByHand(ctx, job)
				b.detail["rows"] = run.Rows
				return err
			})
			if err != nil {
				return fmt.Errorf("%s moved %d rows and failed: %w", job.Name, run.Rows, err)
			}
			if g.output == "json" {
				return g.printJSON(map[string]any{"job": job.Name, "rows": run.Rows,
					"duration_ms": run.Duration.Seconds() * 1000})
			}
			_, err = fmt.Fprintf(g.stdout, "%s moved %d rows in %s\n", job.Name, run.Rows,
				run.Duration.Round(time.Millisecond))
			return err
		})
}

// dueOut is a line of a dry run.
type dueOut struct {
	Tenant string `json:"tenant,omitempty"`
	Type   string `json:"type,omitempty"`
	Rows   int    `json:"rows"`
}

// dryRun shows how many rows a job would move.
func (g *globals) dryRun(ctx context.Context, job governance.Job) error {
	due, err := job.DryRun(ctx)
	if err != nil {
		return err
	}
	sum := 0
	out := []dueOut{}
	rows := [][]string{}
	for _, d := range due {
		sum += d.Rows
		out = append(out, dueOut{d.Tenant, d.Type, d.Rows})
		rows = append(rows, []string{d.Tenant, d.Type, number(int64(d.Rows))})
	}
	if g.output == "json" {
		return g.printJSON(map[string]any{"job": job.Name, "dry_run": true, "rows": sum,
			"data": out})
	}
	if err := g.printTable("TENANT TYPE ROWS", rows); err != nil {
		return err
	}
	_, err = fmt.Fprintf(g.stdout, "\n%s would move %d rows; nothing was changed\n", job.Name, sum)
	return err
}
