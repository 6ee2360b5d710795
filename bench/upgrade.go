package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/migrations"
)

// upgradeConfig says which migrations are measured, on how many rows.
type upgradeConfig struct {
	options
	rows sizes
	from int
}

func parseUpgrade(args []string) (upgradeConfig, error) {
	cfg := upgradeConfig{rows: sizes{1_000_000, 5_000_000}}
	err := cfg.parse(args, "20,000 rows, to see that nothing is broken", func(f *flag.FlagSet) {
		f.Var(&cfg.rows, "rows", "rows of each table, ascending, such as 1000000,5000000")
		f.IntVar(&cfg.from, "from", 30, "the first migration that is measured")
	})
	if cfg.short {
		cfg.rows = sizes{20_000}
	}
	return cfg, err
}

// otherType is the number of no type: no job looks at the rows that are filled in.
const otherType = 999_999

// fillUpgraded writes rows $2 up to $3, of the type $1, into the tables that migrations make an
// index of.
var fillUpgraded = map[string]string{
	"wait": `INSERT INTO wait (type, id, seq, stage, attempt, order_time, reason, key, until)
		SELECT $1::int, n, 1, 'call', 1, now(), 'endpoint', 'customer-' || n % 1000, 'infinity'
		FROM generate_series($2::bigint, $3) n`,
	"content_waits": `INSERT INTO content_waits (type, id, since)
		SELECT $1::int, n, now() - n * interval '1 ms' FROM generate_series($2::bigint, $3) n`,
	"edges": `INSERT INTO edges (type, id, n, on_type, on_id, on_failure, status)
		SELECT $1::int, n, 1, $1, n + 1, 'cancel', 'succeeded'
		FROM generate_series($2::bigint, $3) n`,
}

// newIndex is an index that a migration makes.
type newIndex struct{ migration, table, statement string }

var createIndex = regexp.MustCompile(`(?s)CREATE INDEX(?: \w+)? ON (\w+) [^;]*;`)

// newIndexes returns the indexes on tables with rows of tasks that the migrations of tenants make,
// from a version on, without their names: each is made beside the one that is there.
func newIndexes(from int) (all []newIndex, err error) {
	files, err := fs.Glob(migrations.Tenant(), "*.sql")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		version := 0
		if _, err := fmt.Sscanf(file, "%d_", &version); err != nil || version < from {
			continue
		}
		text, err := fs.ReadFile(migrations.Tenant(), file)
		if err != nil {
			return nil, err
		}
		for _, m := range createIndex.FindAllStringSubmatch(string(text), -1) {
			if fillUpgraded[m[1]] != "" {
				_, rest, _ := strings.Cut(m[0], " ON ")
				all = append(all, newIndex{strings.TrimSuffix(file, ".sql"), m[1],
					"CREATE INDEX ON " + rest})
			}
		}
	}
	return all, nil
}

// runUpgrade asks: for how long do migrations hold up tasks? It makes the index of each migration
// again, on tables with many rows, while a node takes tasks with and without a delay.
func runUpgrade(ctx context.Context, r *rig.Rig, cfg upgradeConfig) error {
	t, err := registerWarm(ctx, r, "upgraded", rig.Shape{})
	if err != nil {
		return err
	}
	indexes, err := newIndexes(cfg.from)
	if err != nil {
		return err
	}
	if _, err := r.DB.Conn.Exec(ctx, `SET search_path = `+rig.Schema); err != nil {
		return err
	}
	g := report.Grid{Machine: describe(r), By: "Rows of the table"}
	filled := 0
	for _, rows := range cfg.rows {
		var all report.Figures
		for table, statement := range fillUpgraded {
			if _, err := r.DB.Conn.Exec(ctx, statement, otherType, filled+1, rows); err != nil {
				return fmt.Errorf("fill %s: %w", table, err)
			}
		}
		filled = rows
		if err := r.DB.Checkpoint(ctx); err != nil {
			return err
		}
		for _, index := range indexes {
			figures, err := index.measure(ctx, r, t)
			if err != nil {
				return fmt.Errorf("%s: %w", index.migration, err)
			}
			all = append(all, figures...)
		}
		g.Columns = append(g.Columns, report.Number(float64(rows)))
		g.Add(all)
	}
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// measure makes the index while tasks are submitted, up to 50 a second without a delay and as many
// with one: these write to the table wait.
func (i newIndex) measure(
	ctx context.Context, r *rig.Rig, t *rig.TaskType,
) (all report.Figures, err error) {
	made := make(chan struct{})
	var g errgroup.Group
	var plain, delayed slowSubmits
	g.Go(func() error { return plain.submit(ctx, r, t, "", made) })
	g.Go(func() error { return delayed.submit(ctx, r, t, `"delay":"30d",`, made) })
	start := time.Now()
	_, err = r.DB.Conn.Exec(ctx, i.statement)
	took := time.Since(start)
	close(made)
	err = errors.Join(err, g.Wait())
	key, name := i.migration[:5], fmt.Sprintf("`%s`, on `%s`", i.migration, i.table)
	all.Add(key+"_made", name+": made in", "s", took.Seconds())
	plain.add(&all, key+"_plain", "– submits")
	delayed.add(&all, key+"_delayed", "– submits with a delay")
	return all, err
}

// slowSubmits are the submits while an index is made.
type slowSubmits struct {
	longest time.Duration
	refused int
}

// submit submits one task after the other, up to 50 a second, until 2 s after made is closed.
func (s *slowSubmits) submit(
	ctx context.Context, r *rig.Rig, t *rig.TaskType, more string, made <-chan struct{},
) error {
	body := rig.AppendTask(nil, t.Name, 0, payload.Usual, more)
	var end time.Time
	for end.IsZero() || time.Now().Before(end) {
		start := time.Now()
		_, err := r.API.Call(ctx, http.MethodPost, "/v1/tasks", body)
		if refusal := new(rig.Refusal); errors.As(err, &refusal) {
			s.refused++
		} else if err != nil {
			return err
		}
		s.longest = max(s.longest, time.Since(start))
		select {
		case <-made:
			made, end = nil, time.Now().Add(2*time.Second)
		default:
		}
		if !sleep.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// add adds what the submits were like.
func (s *slowSubmits) add(all *report.Figures, key, name string) {
	all.Add(key+"_longest", name+": the longest", "ms", s.longest.Seconds()*1e3)
	all.Add(key+"_refused", name+": refused", "submits", float64(s.refused))
}
