package records

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// signalWait is a task of a type that waits for a signal from a transaction on.
type signalWait struct {
	number int32
	id     int64
	wait   asyncflow.Wait
}

// queueSignalWait adds the row of signal_waits to a batch. It replaces an earlier row of the task.
func queueSignalWait(b *pgx.Batch, t *config.TableNames, w signalWait, now time.Time) {
	b.Queue(t.SQL(0, `INSERT INTO {signal_waits} (type, id, signal, since, until)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (type, id) DO UPDATE SET signal = excluded.signal,
		  since = excluded.since, until = excluded.until, late = false`), w.number, w.id,
		w.wait.Signal, now, now.Add(w.wait.Timeout.Std()))
}
