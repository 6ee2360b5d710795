package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
	"github.com/asyncflow/asyncflow/internal/sleep"
)

// noisyConfig says how much is measured, and how noisy the other tenant is.
type noisyConfig struct {
	options
	rounds  int
	lasting time.Duration
	quota   float64 // of the noisy tenant, in submits a second
}

func parseNoisy(args []string) (noisyConfig, error) {
	var cfg noisyConfig
	const short = "one round of a few seconds, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 5, "how often both are measured")
		f.DurationVar(&cfg.lasting, "lasting", 20*time.Second, "for how long, each time")
		f.Float64Var(&cfg.quota, "quota", 500, "tasks a second that the noisy tenant may submit")
	})
	if cfg.short {
		cfg.rounds, cfg.lasting = 1, 5*time.Second
	}
	if err == nil && (cfg.rounds < 1 || cfg.lasting < time.Second || cfg.quota <= 0) {
		err = errors.New(
			"--rounds must be at least 1, --lasting at least 1s, and --quota positive")
	}
	return cfg, err
}

// runNoisy asks: what does a tenant cost the others that floods an endpoint which never answers?
// The latency of a quiet tenant is measured by turns alone and beside the noisy one, which submits
// all that its quota allows, and more.
func runNoisy(ctx context.Context, r *rig.Rig, cfg noisyConfig) error {
	g := report.Grid{
		Machine: describe(r),
		By:      "Tenant",
		Columns: []string{"alone", "beside a noisy one"},
	}
	t, err := registerWarm(ctx, r, "bench", rig.Shape{})
	if err != nil {
		return err
	}
	noise, err := newFlood(ctx, r, cfg.quota)
	if err != nil {
		return fmt.Errorf("the noisy tenant: %w", err)
	}
	var all [2]report.Rounds
	for n := range cfg.rounds {
		for turn := range all {
			i := (n + turn) % len(all)
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s\n", n+1, cfg.rounds, g.Columns[i])
			stop := func() error { return nil }
			if i == 1 {
				stop = noise.start(ctx)
			}
			f, err := r.Latency(ctx, t, cfg.lasting)
			if err := errors.Join(err, stop()); err != nil {
				return fmt.Errorf("round %d: %w", n+1, err)
			}
			all[i].Add(f)
		}
	}
	for _, rounds := range all {
		g.Add(rounds.Medians())
	}
	g.WriteMarkdown(os.Stdout)
	fmt.Printf("\nThe noisy tenant submitted %s tasks, at a quota of %s a second.\n",
		report.Number(float64(noise.accepted.Load())), report.Number(cfg.quota))
	return report.WriteJSON(cfg.json, g)
}

// flood is the noisy tenant.
type flood struct {
	client   *rig.Client
	accepted atomic.Int64 // tasks
}

const floodType = "flood"

// newFlood makes the noisy tenant, with a type with a hanging endpoint.
func newFlood(ctx context.Context, r *rig.Rig, quota float64) (*flood, error) {
	quotas := fmt.Sprintf(`{"submits_per_second":%g}`, quota)
	c, err := r.NewTenant(ctx, "noisy", quotas)
	if err != nil {
		return nil, err
	}
	document := []byte(`{"stages":[{"name":"call"}]}`)
	_, err = c.Call(ctx, http.MethodPut, "/v1/task-types/"+floodType, document)
	if err != nil {
		return nil, err
	}
	endpoint := fmt.Appendf(nil, `{"type":%q,"stage":"call","url":%q}`,
		floodType, r.Worker.Base+worker.HangPath)
	_, err = c.Call(ctx, http.MethodPost, "/v1/endpoints", endpoint)
	return &flood{client: c}, err
}

// start submits as fast as it can until stop is called. The node refuses what exceeds the quota.
func (f *flood) start(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	for range rig.Submitters {
		g.Go(func() error {
			for ctx.Err() == nil {
				if err := f.client.SubmitBatch(ctx, floodType, 0, ""); err != nil {
					// Come back later, as a client does that was refused.
					sleep.For(ctx, 20*time.Millisecond)
					continue
				}
				f.accepted.Add(rig.BatchSize)
			}
			return nil
		})
	}
	return func() error {
		cancel()
		return g.Wait()
	}
}
