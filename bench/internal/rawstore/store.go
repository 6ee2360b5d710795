// Package rawstore works off tasks with the store alone, in this process: without HTTP, without
// workers, and without anything else between submit, lease and settle.
//
// This file is the only one of the bench that calls the Go API below HTTP.
package rawstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/bench/internal/payload"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/store"
)

const (
	taskType = "bench"
	started  = "started" // of tasks that others start
)

// users is the number of users of tasks with labels.
const users = 1000

// Store is a store with one task type.
type Store struct {
	// Leased is called after each lease, if it isn't nil.
	Leased func(took time.Duration, leases []asyncflow.Lease)
	// Labelled gives each task a user and an order.
	Labelled bool

	tenant    string
	store     *store.Store
	committer *dispatcher.Committer
	typ       *store.Type
	starting  bool // see StartOthers
	stop      func() error
}

// Prepare makes the schema and the tenant in a database.
func Prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, rig.Tenant)
	return err
}

// PrepareWithoutRoles makes the schema and some tenants in a database, without database roles.
func PrepareWithoutRoles(ctx context.Context, url string, tenants ...string) error {
	without := store.WithoutRoles(true)
	if _, err := store.Migrate(ctx, url, without); err != nil {
		return err
	}
	for _, tenant := range tenants {
		if _, err := store.CreateTenant(ctx, url, tenant, without); err != nil {
			return err
		}
	}
	return nil
}

// Open opens the store of a database that is prepared, with searchable fields.
func Open(ctx context.Context, url string, searchable ...string) (*Store, error) {
	return open(ctx, store.Config{URL: url}, rig.Tenant, searchable...)
}

// OpenWithoutRoles opens the store of a database of PrepareWithoutRoles, for a tenant. It goes
// straight to the workers of Citus or, as one that makes no tenants there, by the coordinator.
func OpenWithoutRoles(
	ctx context.Context, url, tenant string, straight bool,
) (*Store, error) {
	return open(ctx, store.Config{URL: url, NoRoles: true, NotDistributed: !straight}, tenant)
}

func open(
	ctx context.Context, cfg store.Config, tenant string, searchable ...string,
) (*Store, error) {
	cfg.Node, cfg.Notify = "bench", true
	s, err := store.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	committer := dispatcher.NewCommitter(s, nil)
	r := &Store{tenant: tenant, store: s, committer: committer, stop: func() error {
		committer.Close()
		cancel()
		defer s.Close()
		return <-ended
	}}
	if err := r.putType(ctx, searchable...); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// Of returns the store of the same node for another tenant. It ends with the first one.
func (s *Store) Of(ctx context.Context, tenant string) (*Store, error) {
	other := *s
	other.tenant = tenant
	return &other, other.putType(ctx)
}

func (s *Store) putType(ctx context.Context, searchable ...string) error {
	t := asyncflow.TaskType{Name: taskType, Searchable: searchable,
		Stages: []asyncflow.Stage{{Name: "call"}}}.WithDefaults()
	_, _, err := s.store.PutTaskType(ctx, s.tenant, t)
	if err != nil {
		return err
	}
	s.typ, err = s.store.Catalog.Type(s.tenant, taskType)
	return err
}

// StartOthers has each task start another one when it ends, which nobody leases.
func (s *Store) StartOthers(ctx context.Context) error {
	s.starting = true
	_, _, err := s.store.PutTaskType(ctx, s.tenant, asyncflow.TaskType{Name: started,
		Stages: []asyncflow.Stage{{Name: "call"}}}.WithDefaults())
	return err
}

// FollowUp waits until nothing is left to do after the ends of tasks.
func (s *Store) FollowUp(ctx context.Context) error {
	for {
		due, err := s.store.DryRunFollowUps(ctx, s.tenant)
		if err != nil || len(due) == 0 {
			return err
		}
		if _, err := s.committer.FollowUp(ctx, s.tenant); err != nil {
			return err
		}
	}
}

// Close ends the store.
func (s *Store) Close() error { return s.stop() }

// Govern runs the background jobs of a node until ctx ends.
func (s *Store) Govern(ctx context.Context) error {
	g, err := governance.New(s.store, s.committer,
		governance.Config{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return g.Run(ctx)
}

// submit submits a batch of tasks, from number first on.
func (s *Store) submit(ctx context.Context, first int) error {
	batch := make([]asyncflow.NewTask, rig.BatchSize)
	for i := range batch {
		context := json.RawMessage(payload.Append(nil, first+i, payload.Usual))
		batch[i] = asyncflow.NewTask{Type: taskType, Context: context}
		if s.Labelled {
			batch[i].Options.User = fmt.Sprint("user-", (first+i)%users)
			batch[i].Options.Metadata = map[string]string{"order": fmt.Sprint(first + i)}
		}
	}
	for _, r := range s.committer.Submit(ctx, s.tenant, batch) {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// lease leases at most n tasks.
func (s *Store) lease(ctx context.Context, n int) ([]asyncflow.Lease, error) {
	leases, _, err := s.store.Lease(ctx, s.typ, n)
	return leases, err
}

// settle settles a lease as delivered, and calls done later with what came of it.
func (s *Store) settle(l asyncflow.Lease, done func(error)) {
	o := asyncflow.Outcome{
		Kind:     asyncflow.OutcomeDone,
		Status:   200,
		Duration: time.Millisecond,
		Endpoint: "http://127.0.0.1:12345/deliver",
	}
	if s.starting {
		o.Spawn = []asyncflow.SpawnedTask{{Type: started, Context: json.RawMessage(`{"of":1}`)}}
	}
	v := asyncflow.Decide(s.typ.TaskType, l, o, s.store.Clock.Now())
	settlement := asyncflow.Settlement{Lease: l, Outcome: o, Verdict: v}
	s.committer.Settle(s.tenant, settlement, func(r store.Settled) {
		if r.Stale {
			r.Err = errors.Join(r.Err, errors.New("the lease is stale"))
		}
		done(r.Err)
	})
}
