package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// signalPatience is how long a signal waits for a transaction that sends one with the same
// idempotency key, or for a tenant that moves to another worker of Citus, for which claims wait as
// long: meanwhile it has a connection that others need.
const signalPatience = "3s"

// SendSignal sends a signal to a task, or keeps it for the one that will have its key. The rules
// are those of the function signal_send in the tenant's schema, which send_signal uses, too.
func (s *Trees) SendSignal(
	ctx context.Context, tenant string, signal asyncflow.Signal,
) (sent asyncflow.SentSignal, err error) {
	var keep *time.Duration
	if d := signal.Keep.Std(); d != 0 {
		keep = &d
	}
	committing := false
	err = pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		var refusal []string
		var task *string
		var until *time.Time
		b := &pgx.Batch{}
		b.Queue(`SET LOCAL lock_timeout = '` + signalPatience + `'`)
		b.Queue(config.NewTables(tenant, config.SharedSet).SQL(0, `
			SELECT refusal, coalesce(sent_type, ''), sent_task, kept_until, existing
			FROM {signal_send}($1, $2::text::json, $3, $4, $5, $6::interval, $7)`), signal.Name,
			postgres.OrNull(string(signal.Data)), postgres.OrNull(signal.Type),
			postgres.OrNull(signal.Key), postgres.OrNull(signal.Task), keep,
			postgres.OrNull(signal.IdempotencyKey)).QueryRow(func(row pgx.Row) error {
			return row.Scan(&refusal, &sent.Type, &task, &until, &sent.Existing)
		})
		err := tx.SendBatch(ctx, b).Close()
		switch {
		case err != nil:
			return err
		case refusal != nil:
			return refusedSignal(refusal)
		}
		if task != nil {
			sent.Task = *task
		}
		sent.KeptUntil = postgres.OrZero(until)
		committing = true
		return nil
	})
	if committing && err != nil && !postgres.RolledBack(err) {
		err = &asyncflow.Error{Code: asyncflow.CodeUncertain, RetryAfter: time.Second, Err: err,
			Message: "the database went away: it is not known whether the signal was sent"}
	}
	if err != nil {
		return asyncflow.SentSignal{}, postgres.Wrap(err, "SendSignal(%q, %q)", tenant, signal.Name)
	}
	if !sent.Existing {
		s.core.TellFollowUp(tenant)
	}
	return sent, nil
}

// refusedSignal returns the error for the code, the message and the field of a refusal.
func refusedSignal(refusal []string) error {
	err := &asyncflow.Error{Code: asyncflow.Code(refusal[0]), Message: refusal[1]}
	if field := refusal[2]; field != "" {
		err.Fields = []asyncflow.FieldError{{Field: field, Message: refusal[1]}}
	}
	return err
}

// overdueSignals are signals that are kept no longer. A task that waited while its signal was kept
// takes it, however late a node comes to that.
const overdueSignals = `{signals} s WHERE kept_until <= $1
  AND NOT EXISTS (SELECT FROM {signal_waits} w WHERE w.type = s.type AND w.id = s.task
    AND w.signal = s.name AND w.since < s.kept_until AND NOT s.taken)`

// ForgetSignals deletes up to JobBatch of a tenant's signals that are kept no longer, and returns
// how many.
func (s *Trees) ForgetSignals(ctx context.Context, tenant string) (int, error) {
	tag, err := s.core.DB(tenant).Exec(ctx, config.NewTables(tenant, config.SharedSet).SQL(0, `
		DELETE FROM {signals} WHERE ctid = ANY (ARRAY(SELECT ctid FROM `+overdueSignals+`
		  ORDER BY kept_until LIMIT $2 FOR UPDATE OF s SKIP LOCKED))`),
		s.core.Clock.Now(), catalog.JobBatch)
	return int(tag.RowsAffected()), postgres.Wrap(err, "ForgetSignals(%q)", tenant)
}

// DryRunForgetSignals returns how many signals are kept no longer.
func (s *Trees) DryRunForgetSignals(ctx context.Context, tenant string) (int, error) {
	return postgres.CountRows(ctx, s.core.DB(tenant), config.NewTables(tenant, "").SQL(0,
		`SELECT count(*) FROM `+overdueSignals), s.core.Clock.Now())
}
