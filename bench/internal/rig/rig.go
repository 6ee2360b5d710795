// Package rig is the bench that all scenarios measure on: a Postgres that keeps its promises, a
// node or several, a worker, a client, and a meter for what they use. Each is a process of its
// own, but for the client, which is this one.
package rig

import (
	"context"
	"time"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// Tenant is the measured tenant, unless a scenario makes others.
const Tenant = "bench"

// startLimit is how long everything may take to start.
const startLimit = 2 * time.Minute

// Config says what a rig is made of.
type Config struct {
	Binary   string            // the asyncflow program to measure; empty: build ./cmd/asyncflow
	Settings map[string]string // of Postgres, in addition to the usual ones
	NodeArgs []string          // flags of the nodes, in addition to the usual ones
	NodeEnv  []string          // variables of the nodes, in addition to the usual ones
}

// Rig is everything that runs, and the means to measure it.
type Rig struct {
	Config
	Nodes  []*Node
	API    *Client // of the first node
	Worker *Client // the worker's own API
	DB     *Database

	dir      *tempDir
	postgres *devpg.Server
	database string // that the nodes use
	worker   *Process
	secrets  secrets
	next     int // number of the next task, of any type

	stops []func()
}

// Start starts Postgres, the worker and a node, and makes the tenant.
func Start(ctx context.Context, cfg Config) (*Rig, error) {
	r := New(cfg)
	return r, r.Begin(ctx, r.StartPostgres, r.StartWorker, r.StartNode, r.MakeTenant)
}

// New returns a rig in which nothing runs yet: Begin starts its parts.
func New(cfg Config) *Rig { return &Rig{Config: cfg} }

// Begin takes the steps of a start. When one fails, it ends all that was started.
func (r *Rig) Begin(ctx context.Context, steps ...func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			r.Stop()
			return err
		}
	}
	return nil
}

// Side returns another rig on the same Postgres, with a database and a worker of its own, and no
// node yet. It ends with r. binary is the program that its nodes run.
func (r *Rig) Side(ctx context.Context, name, binary string) (*Rig, error) {
	s := New(Config{Binary: binary, NodeArgs: r.NodeArgs})
	s.dir, s.postgres, s.database = r.dir, r.postgres, r.database+"_"+name
	err := s.Begin(ctx, s.openDatabase, s.StartWorker)
	if err != nil {
		return s, err
	}
	r.stops = append(r.stops, s.Stop)
	return s, nil
}

// Stop ends everything, last started first.
func (r *Rig) Stop() {
	r.StopNodes()
	for i := len(r.stops) - 1; i >= 0; i-- {
		r.stops[i]()
	}
	r.stops = nil
}

// Path returns the path of a file in the temporary directory of the rig.
func (r *Rig) Path(name string) string { return r.dir.join(name) }

// Poll calls done once a period until it returns true or an error, or ctx ends.
func Poll(ctx context.Context, period time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// Patience is how long a number of deliveries may take before a measurement is given up: 500 a
// second, and half a minute on top.
func Patience(deliveries int) time.Duration {
	return time.Duration(deliveries)*2*time.Millisecond + Slack
}

// Slack is how long anything may take on top of the time that it should take.
const Slack = 30 * time.Second
