package store

import (
	"context"
	"errors"
	"maps"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Act is a call that has one entry in the audit. A change writes it in the transaction
// that makes the change, so that neither is there without the other; what changes nothing
// is written by Record afterwards. One goroutine at a time may use it.
type Act struct {
	asyncflow.AuditEntry // its Status is that of the answer if all goes well

	// Schema is the tenant in whose audit it is; "": in that of what belongs to none.
	Schema string
	// StatusNew is the Status if the call has made something new; 0: the same.
	StatusNew int

	isNew   bool
	written bool
}

// NewAct returns an act with an id of its own.
func NewAct(schema string, e asyncflow.AuditEntry) *Act {
	e.ID, e.Calls = uuid.Must(uuid.NewV7()).String(), max(1, e.Calls)
	return &Act{AuditEntry: e, Schema: schema}
}

type actKey struct{}

// WithAct has the changes that are made with the context write the act.
func WithAct(ctx context.Context, a *Act) context.Context {
	return context.WithValue(ctx, actKey{}, a)
}

// ActOf returns the act of a context; nil, which takes every note and keeps none, if it
// has none.
func ActOf(ctx context.Context) *Act {
	a, _ := ctx.Value(actKey{}).(*Act)
	return a
}

// Note adds to the details. value must be short, and no secret.
func (a *Act) Note(key string, value any) {
	if a == nil {
		return
	}
	if a.Detail == nil {
		a.Detail = map[string]any{}
	}
	a.Detail[key] = value
}

// About names the object of the act.
func (a *Act) About(object string) {
	if a != nil {
		a.Object = object
	}
}

// noteVersion adds which version of its object the act made, and whether it is new.
func (a *Act) noteVersion(version int, isNew bool) {
	if a != nil {
		a.Note("version", version)
		a.isNew = isNew
	}
}

// noteOperation adds what an operation is about.
func (a *Act) noteOperation(o Operation) {
	a.Note("operation", o.ID)
	a.Note("total", o.Total)
}

// Written tells whether the act's entry is in the audit.
func (a *Act) Written() bool { return a.written }

// acting runs do in a transaction of a tenant ("": of what belongs to none) that also
// writes the act of the context, if it has one. An error of do, errSame and errDry too,
// leaves the act to be written later. do must not take another role.
func (s *Store) acting(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	return s.actingThen(ctx, tenant, do, nil)
}

// actingThen is acting with something that is done at the end, under the base role.
func (s *Store) actingThen(ctx context.Context, tenant string, do, then func(pgx.Tx) error) error {
	a := ActOf(ctx)
	if a != nil && a.written {
		a = nil
	}
	var detail map[string]any
	if a != nil {
		detail = maps.Clone(a.Detail)
	}
	err := pgx.BeginFunc(ctx, s.of(tenant), func(tx pgx.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return s.endAct(ctx, tx, a, then)
	})
	if errors.Is(err, errSame) { // an earlier try has changed it, maybe, whose answer was lost
		err = postgres.FirstError(confirm(ctx, s.of(tenant)), errSame)
	}
	if a == nil {
		return err
	}
	if a.written = err == nil; !a.written {
		a.Detail, a.isNew = detail, false
	}
	return err
}

// endAct writes an act, if there is one, and runs then, if that is not nil. The entry
// in a tenant's audit is written under the tenant's role, all else under the base role.
func (s *Store) endAct(ctx context.Context, tx pgx.Tx, a *Act, then func(pgx.Tx) error) error {
	above := a != nil && a.Schema == ""
	if a != nil && !above {
		if err := insertAudit(ctx, tx, a.Schema, a.done(s)); err != nil {
			return err
		}
	}
	if !above && then == nil {
		return nil
	}
	if err := s.roles.AsBase(ctx, tx); err != nil {
		return err
	}
	if above {
		if err := insertAudit(ctx, tx, "", a.done(s)); err != nil {
			return err
		}
	}
	if then == nil {
		return nil
	}
	return then(tx)
}

// done returns the entry of an act that has changed what it was about.
func (a *Act) done(s *Store) asyncflow.AuditEntry {
	e := a.AuditEntry
	e.At, e.Outcome = s.Clock.Now(), asyncflow.AuditDone
	if a.isNew && a.StatusNew != 0 {
		e.Status = a.StatusNew
	}
	return e
}
