package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/node"
	"github.com/asyncflow/asyncflow/store"
)

// secretFlags are the node secret and its predecessors.
type secretFlags struct {
	Secret string `env:"ASYNCFLOW_SECRET" dev:"secret" required:""`
	Old    string `name:"old-secrets" env:"ASYNCFLOW_OLD_SECRETS" placeholder:"SECRETS"`
}

// oldSecrets returns the secrets of a list.
func oldSecrets(list string) ([][]byte, error) {
	var all [][]byte
	for _, secret := range strings.Split(list, ",") {
		if secret = strings.TrimSpace(secret); secret != "" {
			all = append(all, []byte(secret))
		}
	}
	// NewKeys says what is wrong with the secrets
	_, err := callbacks.NewKeys(make([]byte, callbacks.MinSecretBytes), all...)
	return all, err
}

func (f secretFlags) keys() (*callbacks.Keys, error) {
	old, err := oldSecrets(f.Old)
	if err != nil {
		return nil, usageError(err)
	}
	keys, err := callbacks.NewKeys([]byte(f.Secret), old...)
	if err != nil {
		return nil, usageError(rename("ASYNCFLOW_SECRET", err))
	}
	return keys, nil
}

// sealCount counts what is sealed, by secret.
type sealCount struct {
	Tenants  int    `json:"tenants"`
	Sealed   int    `json:"sealed"`
	Others   int    `json:"others"`             // of these, with another secret
	Resealed int    `json:"resealed,omitempty"` // endpoints
	Key      string `json:"key"`                // the id of the secret's key
}

type keysStatusCmd struct {
	databaseFlag
	secretFlags
}

// Run counts.
func (c *keysStatusCmd) Run(ctx context.Context, g *globals) error {
	return withSeals(ctx, c.databaseFlag, c.secretFlags,
		func(s *store.Store, keys *callbacks.Keys) error {
			return g.printSeals(countSeals(ctx, s, keys))
		})
}

type keysResealCmd struct {
	databaseFlag
	secretFlags
}

func (c *keysResealCmd) Help() string {
	return `To replace the secret that all nodes share without downtime:

    1. Restart all nodes with the old secret in ASYNCFLOW_SECRET
       and the new one in ASYNCFLOW_OLD_SECRETS.
    2. Restart all nodes with the new secret in ASYNCFLOW_SECRET
       and the old one in ASYNCFLOW_OLD_SECRETS.
    3. Run asyncflow keys reseal with the same two.
    4. Wait until the attempts that were in flight in step 2 are over, and another hour.
       Then restart all nodes without the old secret.

The command can be interrupted and run again. The exit code is 1 if something was not resealed.`
}

// Run reseals everything, and reports the progress.
func (c *keysResealCmd) Run(ctx context.Context, g *globals) error {
	return withSeals(ctx, c.databaseFlag, c.secretFlags,
		func(s *store.Store, keys *callbacks.Keys) error {
			var done int
			var errs []error
			for _, tenant := range slices.Sorted(maps.Keys(s.Catalog.Tenants())) {
				n, err := reseal(ctx, s, tenant, keys)
				done += n
				errs = append(errs, err)
				if n > 0 {
					fmt.Fprintf(g.stderr, "tenant %s: %d endpoints resealed\n", tenant, n)
				}
			}
			n, err := countSeals(ctx, s, keys)
			n.Resealed = done
			if err := g.printSeals(n, errors.Join(append(errs, err)...)); err != nil {
				return err
			}
			if n.Others > 0 {
				return asyncflow.Errorf(asyncflow.CodeConflict,
					"%d were sealed with another secret meanwhile: a node still has it as "+
						"ASYNCFLOW_SECRET",
					n.Others)
			}
			return nil
		})
}

// reseal reseals a tenant's endpoints, and returns their number.
func reseal(
	ctx context.Context, s *store.Store, tenant string, keys *callbacks.Keys,
) (sum int, err error) {
	var errs []error
	for after := ""; ; {
		last, n, err := s.Reseal(ctx, tenant, after, keys.SealedBy(), keys.Reseal)
		sum += n
		errs = append(errs, err)
		if last == "" || ctx.Err() != nil {
			return sum, errors.Join(errs...)
		}
		after = last
	}
}

// withSeals opens the database for a command that takes the secrets.
func withSeals(
	ctx context.Context, db databaseFlag, f secretFlags,
	do func(*store.Store, *callbacks.Keys) error,
) error {
	keys, err := f.keys()
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, store.Config{URL: db.DatabaseURL, Node: node.NewName(), Pool: 2,
		HotPool: 1, Notify: true, NoRoles: db.off()})
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s, keys)
}

func countSeals(ctx context.Context, s *store.Store, keys *callbacks.Keys) (sealCount, error) {
	sum := sealCount{Key: keys.ID()}
	var errs []error
	for tenant := range s.Catalog.Tenants() {
		all, others, err := s.Seals(ctx, tenant, keys.SealedBy())
		sum.Tenants++
		sum.Sealed += all
		sum.Others += others
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

func (g *globals) printSeals(n sealCount, err error) error {
	if done, err := g.asDocument(n, err); done {
		return err
	}
	return g.printFields("key", n.Key, "tenants", fmt.Sprint(n.Tenants), "sealed",
		fmt.Sprint(n.Sealed), "with another secret", fmt.Sprint(n.Others))
}
