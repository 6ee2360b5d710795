package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How long this side waits for the database. A server that hangs, or a network that forgets
// a connection, says nothing: without a deadline on this side a statement would wait forever.
const (
	// hotStatement bounds a statement or batch that submits, leases or settles. It leaves
	// time for another try within the time that a submit may take (store.SubmitPatience).
	hotStatement = 6 * time.Second
	// BaseStatement bounds any other statement.
	BaseStatement = 10 * time.Second
	// patientStatement bounds statements that may read or drop much. The server ends them
	// earlier, by statement_timeout.
	patientStatement = 35 * time.Second

	// acquireTime bounds the wait for a connection of a pool. It includes pingTime, the wait
	// for a sign of life of a connection that was idle.
	acquireTime = 5 * time.Second
	pingTime    = 2 * time.Second

	// ConnectTimeout bounds the attempt to connect to one host.
	ConnectTimeout = 5 * time.Second
	// connectAll bounds the attempts to connect to all hosts, including the look-up of
	// their names.
	connectAll = 15 * time.Second
)

// patientKey marks a context that gives statements patientStatement.
type patientKey struct{}

// Patient returns a context for statements that may take as long as the server lets them.
func Patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patientKey{}, true)
}

// connectingKey marks a context in which a connection is opened.
type connectingKey struct{}

// deadlines gives everything that goes over the connections of a pool a deadline on this
// side. pgx calls it before each statement, so none can be forgotten.
type deadlines struct {
	statement time.Duration
	group     *PoolGroup
}

// timed is the context of one statement. It ends with the statement.
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

// end ends a context of within. When the server turned out to be read-only, it resets the
// pools: only a new connection looks for the host that takes writes. So it does when the server
// behind a pooler is another one, which refuses a setting: a new connection chooses anew.
func (d *deadlines) end(ctx context.Context, err error) {
	if t, ok := ctx.(*timed); ok {
		t.cancel()
	}
	switch {
	case err == nil:
	case isReadOnly(err):
		d.group.Reset()
	case isSettingRefused(err):
		d.group.compression.forget()
		d.group.Reset()
	}
}

// TraceQueryStart gives a statement its deadline.
func (d *deadlines) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData,
) context.Context {
	return d.begin(ctx)
}

// TraceQueryEnd ends a statement.
func (d *deadlines) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	d.end(ctx, data.Err)
}

// TraceBatchStart gives a batch its deadline.
func (d *deadlines) TraceBatchStart(
	ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData,
) context.Context {
	return d.begin(ctx)
}

// TraceBatchQuery does nothing: the deadline is on the batch, not on its statements.
func (d *deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends a batch.
func (d *deadlines) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	d.end(ctx, data.Err)
}

// TraceConnectStart gives the opening of a connection its deadline.
func (d *deadlines) TraceConnectStart(
	ctx context.Context, _ pgx.TraceConnectStartData,
) context.Context {
	return within(context.WithValue(ctx, connectingKey{}, true), connectAll)
}

// TraceConnectEnd ends the opening of a connection.
func (d *deadlines) TraceConnectEnd(ctx context.Context, _ pgx.TraceConnectEndData) {
	d.end(ctx, nil)
}

// TraceAcquireStart gives the wait for a connection its deadline.
func (d *deadlines) TraceAcquireStart(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData,
) context.Context {
	return within(ctx, acquireTime)
}

// TraceAcquireEnd ends the wait for a connection.
func (d *deadlines) TraceAcquireEnd(
	ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData,
) {
	d.end(ctx, nil)
}
