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

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
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
	err := cfg.parse(args, "one round of a few seconds, to see that nothing is broken", func(f *flag.FlagSet) {
		f.IntVar(&cfg.rounds, "rounds", 5, "how often both are measured")
		f.DurationVar(&cfg.lasting, "lasting", 20*time.Second, "for how long, each time")
		f.Float64Var(&cfg.quota, "quota", 500, "tasks a second that the noisy tenant may submit")
	})
	if cfg.short {
		cfg.rounds, cfg.lasting = 1, 5*time.Second
	}
	if err == nil && (cfg.rounds < 1 || cfg.lasting < time.Second || cfg.quota <= 0) {
		err = fmt.Errorf("--rounds must be at least 1, --lasting at least 1s, and --quota positive")
	}
	return cfg, err
}

// noisyTenant floods, and its endpoint hangs.
const noisyTenant = "noisy"

// runNoisy measures the latency of a tenant, by turns alone and beside one that submits
// all that it may, and more, to an endpoint that never answers.
func runNoisy(ctx context.Context, args []string) error {
	cfg, err := parseNoisy(args)
	if err != nil {
		return err
	}
	b, err := start(ctx, cfg.options)
	if err != nil {
		return err
	}
	defer b.stop()
	g := grid{Machine: describeMachine(), By: "Tenant", Columns: []string{"alone", "beside a noisy one"}}
	if g.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	p, err := b.register(ctx, "bench", "")
	if err == nil {
		err = b.warmUp(ctx, p)
	}
	if err != nil {
		return err
	}
	noise, err := b.noisyClient(ctx, cfg.quota)
	if err != nil {
		return fmt.Errorf("the noisy tenant: %w", err)
	}
	var all [2]report
	var flooded atomic.Int64
	for n := range cfg.rounds {
		for turn := range all {
			i := (n + turn) % len(all)
			fmt.Fprintf(os.Stderr, "bench: round %d of %d, %s\n", n+1, cfg.rounds, g.Columns[i])
			stop := func() error { return nil }
			if i == 1 {
				stop = noise.flood(ctx, &flooded)
			}
			f, err := b.latency(ctx, p, cfg.lasting)
			if err := errors.Join(err, stop()); err != nil {
				return fmt.Errorf("round %d: %w", n+1, err)
			}
			all[i].add(f)
		}
	}
	for i := range all {
		var medians figures
		for _, s := range all[i].Figures {
			medians = append(medians, figure{s.Key, s.Name, s.Unit, s.Median})
		}
		g.add(medians)
	}
	g.writeMarkdown(os.Stdout)
	fmt.Printf("\nThe noisy tenant got %s tasks in, at a quota of %s a second.\n", number(float64(flooded.Load())), number(cfg.quota))
	return writeJSON(cfg.json, g)
}

// noisyClient makes the noisy tenant, with a type whose endpoint hangs.
func (b *bench) noisyClient(ctx context.Context, quota float64) (*client, error) {
	s, err := store.Open(ctx, store.Config{URL: b.url(), Node: "bench"})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if _, err := s.CreateTenant(ctx, noisyTenant, asyncflow.Quotas{SubmitsPerSecond: quota}); err != nil {
		return nil, err
	}
	token, err := b.token(noisyTenant)
	if err != nil {
		return nil, err
	}
	c := &client{http: b.api.http, base: b.api.base, token: token}
	if _, err := c.call(ctx, http.MethodPut, "/v1/task-types/flood", []byte(`{"stages":[{"name":"call"}]}`)); err != nil {
		return nil, err
	}
	endpoint := fmt.Sprintf(`{"type":"flood","stage":"call","url":%q}`, b.sink.base+hangPath)
	_, err = c.call(ctx, http.MethodPost, "/v1/endpoints", []byte(endpoint))
	return c, err
}

// flood submits as much as goes until stop is called; what is over the quota is refused.
func (c *client) flood(ctx context.Context, accepted *atomic.Int64) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	for range submitters {
		g.Go(func() error {
			for ctx.Err() == nil {
				if err := c.submitBatch(ctx, "flood", 0, ""); err == nil {
					accepted.Add(batchSize)
				} else {
					select { // as a client does that was told to come back later
					case <-ctx.Done():
					case <-time.After(20 * time.Millisecond):
					}
				}
			}
			return nil
		})
	}
	return func() error {
		cancel()
		return g.Wait()
	}
}
