package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Link is how a task stands to a link of one of its deliveries.
type Link struct {
	// Decided is what was decided in the last round of the pass; nil: nothing.
	Decided *asyncflow.LinkDecision
	// Open reports whether a decision counts: the task waits for it, or may come to that wait by
	// the visit to which the delivery belongs.
	Open bool
	// Signal is what a decision sends, without its data. It stands for all decisions of the round.
	Signal asyncflow.Signal
	// Context is that of the task in its stage, while the link is open.
	Context json.RawMessage
	// Links are the wait's.
	Links asyncflow.Links
	// Until is when the wait ends; zero: the task doesn't wait yet.
	Until time.Time

	keys  []string // of signals that links sent in this round
	taken bool     // a decision was taken after the journal was read
}

// Link returns how a task stands to a link of its delivery with a seq, to decide about the wait in
// a stage. CodeNotFound: there is no such task any more.
func (s *Tasks) Link(
	ctx context.Context, tenant string, id asyncflow.TaskID, seq int, stage string,
) (Link, error) {
	l, err := s.link(ctx, tenant, id, seq, stage)
	if err == nil && l.taken { // it is in the journal by now
		l, err = s.link(ctx, tenant, id, seq, stage)
	}
	return l, postgres.Wrap(err, "Link(%q, %s, %d)", tenant, id, seq)
}

// SentLink is Link right after a decision was sent: if that is what it returns, the task takes it
// and no other signal. It waits for a transaction that makes the task go on.
func (s *Tasks) SentLink(
	ctx context.Context, tenant string, id asyncflow.TaskID, seq int, stage string,
) (Link, error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return Link{}, postgres.Wrap(err, "SentLink(%q, %s, %d)", tenant, id, seq)
	}
	_, err = s.core.DB(tenant).Exec(ctx, t.SQL(0, `SELECT FROM {wait}
		WHERE type = $1 AND id = $2 FOR KEY SHARE`), t.Number(), id.Number)
	if err != nil {
		return Link{}, postgres.Wrap(err, "SentLink(%q, %s, %d)", tenant, id, seq)
	}
	return s.Link(ctx, tenant, id, seq, stage)
}

func (s *Tasks) link(
	ctx context.Context, tenant string, id asyncflow.TaskID, seq int, stage string,
) (l Link, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return l, err
	}
	stage, _ = t.Mapped(stage, 1)
	wait := t.WaitOf(stage)
	if wait == nil || wait.Links == nil { // the type is another one now
		return l, nil
	}
	task, err := s.readBare(ctx, tenant, id)
	if err != nil {
		return l, err
	}
	visits, err := trees.ReadVisits(ctx, s.core.DB(tenant), t, id, task.seq)
	if err != nil {
		return l, err
	}
	task.Stage, _ = t.Mapped(task.Stage, 1)
	if !task.Status.Final() {
		visits = visits.With(task.seq+1, task.Stage, task.WaitsFor)
	}
	pass := visits.Pass(seq)
	round, signalled := visits.Round(t, stage, pass)
	if signalled > 0 {
		l.Decided, err = s.decisionAt(ctx, t, id, signalled)
		return l, err
	}
	if task.Status.Final() || !isOpen(t, visits, task, stage, pass) {
		return l, nil
	}
	l.Links = *wait.Links
	l.Signal = asyncflow.Signal{Name: wait.Signal, Task: id.String(),
		Keep:           asyncflow.NewDuration(asyncflow.MaxKeep),
		IdempotencyKey: asyncflow.LinkKey(id, stage, round)}
	for _, name := range t.NamesOf(stage) { // it had when the signal was sent
		l.keys = append(l.keys, asyncflow.LinkKey(id, name, round))
	}
	return l, s.readOpenLink(ctx, t, &task, &l)
}

// isOpen reports whether a live task is in the visit after a pass, or came to the wait of a stage
// by it.
func isOpen(t *config.Type, visits trees.Visits, task Task, stage string, pass int) bool {
	if visits.Pass(task.seq+1) == pass {
		return true
	}
	of, ok := visits.WaitPass(t, stage, task.seq+1)
	return ok && of == pass && task.Stage == stage
}

// scanSignals reads the signal of a link that the task took or will take, and whether another
// signal comes before a decision that a link sends now.
func (l *Link) scanSignals(row pgx.Row) error {
	var taken *bool
	var data *string
	var others bool
	err := row.Scan(&taken, &data, &others)
	switch {
	case err != nil:
		return err
	case taken == nil:
		l.Open = !others
	case *taken:
		l.taken = true
	case data != nil:
		l.Decided = readDecision(*data)
	}
	return nil
}

// decisionAt returns what was decided by the signal that a task took with a row of its journal;
// nil: the signal came another way.
func (s *Tasks) decisionAt(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int,
) (*asyncflow.LinkDecision, error) {
	var output *string
	err := s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(id.Position(), `SELECT output FROM {journal}
		WHERE type = $1 AND id = $2 AND seq = $3`), t.Number(), id.Number, seq).Scan(&output)
	if err != nil || output == nil {
		return nil, err
	}
	return readDecision(*output), nil
}

// readDecision reads the data of a signal; nil: a link didn't send it.
func readDecision(data string) *asyncflow.LinkDecision {
	d := &asyncflow.LinkDecision{}
	if json.Unmarshal([]byte(data), d) != nil || d.Decision == "" {
		return nil
	}
	return d
}

// readOpenLink reads what was sent for a link that counts, and what people are shown.
func (s *Tasks) readOpenLink(
	ctx context.Context, t *config.Type, task *Task, l *Link,
) (err error) {
	b := &pgx.Batch{}
	// A task takes the decision of a link first, then the oldest signal. Signals to its key from
	// before it was there are without a task until it waits.
	b.Queue(t.SQL(task.ID.Position(), `
		SELECT own.taken, own.data, EXISTS (SELECT FROM {signals}
		    WHERE type = $1 AND task = $2 AND name = $3 AND NOT taken AND kept_until > $5
		      AND starts_with(idempotency_key, 'link/') IS NOT TRUE)
		  OR EXISTS (SELECT FROM {signals} s WHERE s.type = $1 AND s.task IS NULL
		      AND s.name = $3 AND NOT s.taken AND s.kept_until > $5 AND s.key = (
		        SELECT t.options->>'key' FROM {task} t WHERE t.type = $1 AND t.id = $2))
		FROM (SELECT) one
		LEFT JOIN LATERAL (SELECT taken, data FROM {signals}
		  WHERE type = $1 AND idempotency_key = ANY ($4)
		    AND (taken OR kept_until > $5 AND name = $3)
		  ORDER BY taken DESC LIMIT 1) own ON true`), t.Number(), task.ID.Number, l.Signal.Name,
		l.keys, s.core.Clock.Now()).QueryRow(l.scanSignals)
	b.Queue(t.SQL(0, `SELECT until FROM {signal_waits} WHERE type = $1 AND id = $2`), t.Number(),
		task.ID.Number).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&l.Until)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	b.Queue(t.SQL(task.ID.Position(), `
		SELECT coalesce((SELECT o.output FROM {journal} o
		  WHERE o.type = t.type AND o.id = t.id AND o.output IS NOT NULL
		  ORDER BY o.seq DESC LIMIT 1), t.context)
		FROM {task} t WHERE t.type = $1 AND t.id = $2`), t.Number(),
		task.ID.Number).QueryRow(func(row pgx.Row) error { return row.Scan(&l.Context) })
	err = s.core.DB(t.Tenant).Send(ctx, b)
	if task.WaitsFor != asyncflow.WaitSignal {
		l.Until = time.Time{} // of an earlier wait
	}
	return err
}
