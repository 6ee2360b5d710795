package audit

import (
	"context"
	"errors"
	"maps"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// AuditedCall is a call with one entry in the audit. A change writes the entry in its own
// transaction, so that neither exists without the other. Record afterwards writes the entry of a
// call that changes nothing. One goroutine at a time may use an AuditedCall.
type Call struct {
	asyncflow.AuditEntry // its Status is that of the answer if the call succeeds

	// Schema is the tenant with the entry in its audit; "": the audit that belongs to no tenant.
	Schema string
	// StatusNew is the Status if the call created something; 0: the same.
	StatusNew int

	isNew   bool
	written bool
	// unanswered: the database broke off during a commit of the change.
	unanswered bool
}

// NewAuditedCall returns an audited call with an id of its own.
func NewCall(schema string, e asyncflow.AuditEntry) *Call {
	e.ID = uuid.Must(uuid.NewV7()).String()
	e.Calls = max(1, e.Calls)
	return &Call{AuditEntry: e, Schema: schema}
}

type callKey struct{}

// WithAuditedCall returns a context; changes under it write the entry of an audited call.
func WithCall(ctx context.Context, a *Call) context.Context {
	return context.WithValue(ctx, callKey{}, a)
}

// AuditedCallOf returns the audited call of a context, or nil. A nil call ignores notes.
func CallOf(ctx context.Context) *Call {
	a, _ := ctx.Value(callKey{}).(*Call)
	return a
}

// Note adds a detail. value must be short, and no secret.
func (a *Call) Note(key string, value any) {
	if a == nil {
		return
	}
	if a.Detail == nil {
		a.Detail = map[string]any{}
	}
	a.Detail[key] = value
}

// About sets the object of the call.
func (a *Call) About(object string) {
	if a != nil {
		a.Object = object
	}
}

// NoteVersion adds the version of the object that the call made, and whether the object is new.
func (a *Call) NoteVersion(version int, isNew bool) {
	if a != nil {
		a.Note("version", version)
		a.isNew = isNew
	}
}

// Written reports whether the call's entry is in the audit.
func (a *Call) Written() bool { return a.written }

// MayStand reports whether the change of the call stands, or may stand because the database broke
// off during its commit.
func (a *Call) MayStand() bool { return a.written || a.unanswered }

// Audited runs do in a transaction of a tenant, or ("") of no tenant, that also writes the entry
// of the context's audited call, if it has one. After an error of do, also ErrSame and ErrDry,
// the entry is written later. do must not take another role.
func Do(ctx context.Context, core *catalog.Core, tenant string, do func(pgx.Tx) error) error {
	return doThen(ctx, core, tenant, do, nil)
}

// auditedThen is audited that also runs then at the end, under the base role.
func doThen(
	ctx context.Context, core *catalog.Core, tenant string, do, then func(pgx.Tx) error,
) error {
	a := CallOf(ctx)
	if a != nil && a.written {
		a = nil
	}
	var detail map[string]any
	if a != nil {
		detail = maps.Clone(a.Detail)
	}
	committing := false
	err := pgx.BeginFunc(ctx, core.DB(tenant), func(tx pgx.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		err := write(ctx, core, tx, a, then)
		committing = err == nil
		return err
	})
	unanswered := committing && err != nil && !postgres.RolledBack(err)
	if errors.Is(err, postgres.ErrSame) { // an earlier try may have made the change
		err = postgres.FirstError(core.Confirm(ctx, core.DB(tenant), tenant), postgres.ErrSame)
	}
	if a == nil {
		return err
	}
	a.unanswered = a.unanswered || unanswered
	if a.written = err == nil; !a.written {
		a.Detail = detail
		a.isNew = false
	}
	return err
}

// writeAudited writes the entry of an audited call and runs then, each unless it is nil. It writes
// to a tenant's audit under the tenant's role; everything else runs under the base role.
func write(
	ctx context.Context, core *catalog.Core, tx pgx.Tx, a *Call, then func(pgx.Tx) error,
) error {
	above := a != nil && a.Schema == ""
	if a != nil && !above {
		if err := Insert(ctx, tx, a.Schema, a.done(core)); err != nil {
			return err
		}
	}
	if !above && then == nil {
		return nil
	}
	if err := core.Roles.AsBase(ctx, tx); err != nil {
		return err
	}
	if above {
		if err := Insert(ctx, tx, "", a.done(core)); err != nil {
			return err
		}
	}
	if then == nil {
		return nil
	}
	return then(tx)
}

// done returns the entry of a call that has made its change.
func (a *Call) done(core *catalog.Core) asyncflow.AuditEntry {
	e := a.AuditEntry
	e.At = core.Clock.Now()
	e.Outcome = asyncflow.AuditDone
	if a.isNew && a.StatusNew != 0 {
		e.Status = a.StatusNew
	}
	return e
}
