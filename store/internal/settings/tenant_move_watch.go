package settings

import (
	"context"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Citus looks once a second whether the new worker has caught up, also while it blocks writes; its
// wait ends early when anything sets the latch of its process. A notification that the process
// listens to does, so side sends one in each round: a look takes it a query of some 100 µs.
const (
	moveChannel = "asyncflow_move"
	moveRound   = 50 * time.Millisecond
	// progressEvery is the time between two looks at the sizes of tables, which ask all workers.
	progressEvery = time.Second
)

// transfer runs the transaction of the move, and returns for how long the tenant's writes were
// blocked.
func (m *move) transfer(ctx context.Context) (pause time.Duration, err error) {
	if err := m.exec(ctx, statementTime, `LISTEN `+moveChannel); err != nil {
		return 0, err
	}
	m.blocked = time.Time{}
	ended := make(chan error, 1)
	// The end of ctx cancels the statement instead: Citus would not notice that we are gone.
	through, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	go func() { ended <- m.transact(through) }()
	w := watch{move: m, heard: time.Now()}
	ticker := time.NewTicker(moveRound)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return w.result(ctx, err)
		case <-ticker.C:
			if w.round(ctx); w.isSilent() {
				w.silent = true
				abandon()
			}
		}
	}
}

// watch is what the side connection sees of the transaction of a move.
type watch struct {
	*move

	tooLong bool // so the move was given up
	phase   MovePhase
	looked  time.Time // at the progress
	heard   time.Time // the coordinator answered
	gaveUp  time.Time // first; zero: not yet
	silent  bool      // the coordinator, or the process: its connection was closed
}

const (
	// silentPatience is how long the coordinator may be silent.
	silentPatience = 30 * time.Second
	// endingPatience is how long a move that was given up may take to end.
	endingPatience = 10 * time.Second
)

// isSilent reports whether nothing was heard of the coordinator for too long, or of the process
// since the move was given up.
func (w *watch) isSilent() bool {
	return time.Since(w.heard) > silentPatience ||
		!w.gaveUp.IsZero() && time.Since(w.gaveUp) > endingPatience
}

// lookSQL wakes the process $1, and reports whether it blocks writes: it has locked the metadata of
// the tenant's shards (class 8 of Citus' locks) exclusively.
const lookSQL = `SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND locktype = 'advisory'
	AND objsubid = 8 AND mode = 'ExclusiveLock' AND granted)
	FROM pg_notify('` + moveChannel + `', '')`

// round looks how far the move is, or gives it up. Each round of a move that was given up tries
// that again: a cancellation between two statements is lost. The end of ctx is for the move, not
// for what cancels it.
func (w *watch) round(ctx context.Context) {
	if !w.blocked.IsZero() && time.Since(w.blocked) > w.MaxPause {
		w.tooLong = true
	}
	if through := context.WithoutCancel(ctx); w.tooLong || ctx.Err() != nil {
		if w.gaveUp.IsZero() {
			w.gaveUp = time.Now()
		}
		w.giveUp(through)
	} else {
		w.look(through)
	}
}

// look wakes the process, and sees how far it is. What can't be seen now is seen in the next round.
func (w *watch) look(ctx context.Context) {
	var blocks bool
	if err := w.ask(ctx, lookSQL, []any{w.process.pid}, &blocks); err != nil {
		return
	}
	switch now := time.Now(); {
	case blocks && w.blocked.IsZero():
		w.blocked = now
		w.report(MoveSwitching, 0, 0)
	case !blocks && now.Sub(w.looked) >= progressEvery:
		w.progress(ctx)
		w.looked = time.Now()
	}
}

// ask reads one row by the side connection, within a bound. A connection that was lost, or that
// became silent, is opened again.
func (w *watch) ask(ctx context.Context, sql string, args []any, into ...any) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.ConnectTimeout)
	defer cancel()
	if w.side.IsClosed() {
		side, err := postgres.Connect(ctx, w.url)
		if err != nil {
			return err
		}
		w.side = side
	}
	err := w.side.QueryRow(ctx, sql, args...).Scan(into...)
	if err == nil {
		w.heard = time.Now()
	}
	return err
}

// giveUpSQL cancels the statement of the process $1, unless the transaction ends by itself.
const giveUpSQL = `SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity
	WHERE pid = $1 AND query !~* '^(commit|rollback)'`

func (w *watch) giveUp(ctx context.Context) {
	var cancelled bool
	// What fails, the next round does.
	_ = w.ask(ctx, giveUpSQL, []any{w.process.pid}, &cancelled)
}

// blockedFor returns for how long writes have been blocked.
func (m *move) blockedFor() time.Duration {
	if m.blocked.IsZero() {
		return moveRound // shorter than a round
	}
	return time.Since(m.blocked)
}

// result returns how long writes were blocked, or why the move failed.
func (w *watch) result(ctx context.Context, err error) (time.Duration, error) {
	switch {
	case err == nil:
		return w.blockedFor(), nil
	case w.silent:
		return 0, asyncflow.Errorf(asyncflow.CodeUnavailable, "given up: the coordinator didn't "+
			"answer any more")
	case postgres.State(err) != pgerrcode.QueryCanceled:
		return 0, err
	case w.tooLong:
		return 0, asyncflow.Errorf(asyncflow.CodeUnavailable, "given up: the tenant's writes were "+
			"blocked for more than %v; it is still on %s. Try again when there is less to do, or "+
			"let the pause be longer", w.MaxPause, w.from)
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}
	return 0, asyncflow.Errorf(asyncflow.CodeUnavailable, "the move was cancelled at the server; "+
		"the tenant is still on %s", w.from)
}

// progressSQL reads how far the move to the server $2, $3 is: Citus' name of the phase, and bytes.
const progressSQL = `SELECT coalesce(max(status), ''), coalesce(sum(target_shard_size), 0)::bigint,
	  coalesce(sum(source_shard_size), 0)::bigint
	FROM get_rebalance_progress() WHERE sessionid = $1 AND targetname = $2 AND targetport = $3`

// progress says how far the move is, when that has changed.
func (w *watch) progress(ctx context.Context) {
	var status string
	var done, total int64
	err := w.ask(ctx, progressSQL, []any{w.process.pid, w.To.Host, w.To.Port},
		&status, &done, &total)
	phase, known := phases[status]
	if err != nil || !known || phase == w.phase && phase != MoveCopying {
		return
	}
	w.phase = phase
	if phase != MoveCopying {
		done, total = 0, 0
	}
	w.report(phase, done, total)
}

// phases are by Citus' names.
var phases = map[string]MovePhase{
	"Setting Up":           MovePreparing,
	"Copying Data":         MoveCopying,
	"Catching Up":          MoveCatching,
	"Creating Constraints": MoveCatching,
	"Final Catchup":        MoveCatching,
}
