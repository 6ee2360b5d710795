package trees

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// firstFailureSQL reads the child of a run that failed first or, if none did, was cancelled first.
// Children that were cancelled because of another one don't count, nor do ends before a redrive.
const firstFailureSQL = `
SELECT id, final, coalesce(error, ''), at FROM {journal} j
WHERE type = $1 AND id BETWEEN $2 AND $3 AND final IN ('failed', 'cancelled')
  AND coalesce(error, '') <> $4
  AND NOT EXISTS (SELECT FROM {journal} l WHERE l.type = j.type AND l.id = j.id AND l.seq > j.seq)
ORDER BY final <> 'failed', at, id LIMIT 1`

// maxFailure is how many bytes of a child's error its parent's error has.
const maxFailure = 1000

// childFailure is why a fan-out failed.
type childFailure struct {
	o     *records.FanOut
	found bool // a child is known that is the reason
	id    asyncflow.TaskID
	index int
	final asyncflow.Status
	error string
	at    time.Time
}

// queue reads the first failure. Children in rolls that were dropped have none.
func (f *childFailure) queue(b *pgx.Batch, t *config.Type, types typesOf) {
	records.QueuePlaces(b, t, f.o)
	for _, r := range f.o.Runs(0, f.o.Spawned) {
		if t := types.ofChildren(t, r); t != nil && t.Has(r.Position()) {
			b.Queue(t.SQL(r.Position(), firstFailureSQL), t.Number(), r.First, r.Last(),
				childStopped).
				Query(func(rows pgx.Rows) error { return f.read(rows, t, r) })
		}
	}
}

// read reads the first failure of a run.
func (f *childFailure) read(rows pgx.Rows, t *config.Type, r records.ChildRun) error {
	for rows.Next() {
		n := childFailure{o: f.o, found: true, id: asyncflow.TaskID{Type: t.Name}}
		if err := rows.Scan(&n.id.Number, &n.final, &n.error, &n.at); err != nil {
			return err
		}
		n.index = f.o.Place(r.Index + int(n.id.Number-r.First))
		if !f.found || n.before(f) {
			*f = n
		}
	}
	return rows.Err()
}

// before reports whether n explains the end of the task better than other.
func (f *childFailure) before(other *childFailure) bool {
	if f.final != other.final {
		return f.final == asyncflow.StatusFailed
	}
	return f.at.Before(other.at)
}

// text is the error of the task.
func (f *childFailure) text() string {
	o := f.o
	text := fmt.Sprintf("of %d children, %d failed and %d were cancelled", o.Count, o.Ended.Failed,
		o.Ended.Cancelled+o.Count-o.Spawned)
	if !f.found {
		return text
	}
	end := "fail"
	if f.final == asyncflow.StatusCancelled {
		end = "be cancelled"
	}
	text += fmt.Sprintf("; the first to %s is %s (index %d)", end, f.id, f.index)
	if f.error == "" {
		return text
	}
	return text + ": " + cutText(f.error, maxFailure)
}

// cutText returns the first n bytes of a text at most, in whole characters.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
