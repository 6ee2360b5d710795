package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How long this side waits for the database. A server that hangs, or a network that forgets
// a connection, says nothing: without a deadline of our own a statement would wait for ever.
const (
	// hotStatement bounds a statement or batch that submits, leases or settles, so that there
	// is time for another try within SubmitPatience;
	// baseStatement, any other one; patientStatement, those that may read or drop much: the
	// server gives those up before, by statement_timeout.
	hotStatement     = 6 * time.Second
	baseStatement    = 10 * time.Second
	patientStatement = 35 * time.Second

	// acquireTime bounds the wait for a connection of a pool. It includes pingTime, the wait
	// for a sign of life of one that was idle.
	acquireTime = 5 * time.Second
	pingTime    = 2 * time.Second

	// connectTimeout bounds the attempt to connect to one host; connectAll, to all of them,
	// with the look-up of their names.
	connectTimeout = 5 * time.Second
	connectAll     = 15 * time.Second
)

// patientKey marks a context whose statements have patientStatement.
type patientKey struct{}

// patient returns a context for statements that may take as long as the server lets them.
func patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patientKey{}, true)
}

// connectingKey marks a context in which a connection is opened.
type connectingKey struct{}

// deadlines gives everything that goes over the connections of a pool a deadline on this
// side. pgx asks it before each statement, so that none can be forgotten.
type deadlines struct {
	statement time.Duration
	pools     *distrust
}

// timed is the context of one statement. It ends with it.
type timed struct {
	context.Context
	cancel context.CancelFunc
}

// within returns ctx with a deadline. pgx hands it to end.
func within(ctx context.Context, limit time.Duration) context.Context {
	inner, cancel := context.WithTimeout(ctx, limit)
	return &timed{inner, cancel}
}

func (d *deadlines) begin(ctx context.Context) context.Context {
	if ctx.Value(patientKey{}) != nil {
		return within(ctx, patientStatement)
	}
	return within(ctx, d.statement)
}

// end ends a context of within. A database that only reads has to be found again: which
// one takes writes is looked at when a connection is opened.
func (d *deadlines) end(ctx context.Context, err error) {
	if t, ok := ctx.(*timed); ok {
		t.cancel()
	}
	if err != nil && isReadOnly(err) {
		d.pools.reset()
	}
}

// TraceQueryStart gives a statement its deadline.
func (d *deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return d.begin(ctx)
}

// TraceQueryEnd ends a statement.
func (d *deadlines) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	d.end(ctx, data.Err)
}

// TraceBatchStart gives a batch its deadline.
func (d *deadlines) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return d.begin(ctx)
}

// TraceBatchQuery is told of each statement of a batch.
func (d *deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends a batch.
func (d *deadlines) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	d.end(ctx, data.Err)
}

// TraceConnectStart gives the opening of a connection its deadline.
func (d *deadlines) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return within(context.WithValue(ctx, connectingKey{}, true), connectAll)
}

// TraceConnectEnd ends it.
func (d *deadlines) TraceConnectEnd(ctx context.Context, _ pgx.TraceConnectEndData) {
	d.end(ctx, nil)
}

// TraceAcquireStart gives the wait for a connection its deadline.
func (d *deadlines) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return within(ctx, acquireTime)
}

// TraceAcquireEnd ends it.
func (d *deadlines) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	d.end(ctx, nil)
}
