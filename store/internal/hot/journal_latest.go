package hot

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// A task's options, its context and the outputs of stages are each in the latest journal row of a
// kind. To find that there is none, a statement reads the whole journal, and there may be thousands
// of rows of a task that loops. So a node remembers about long journals what it found, and up to
// which row it looked: the next statement reads only the rows since.

// longJournal is the number of rows from which on a journal is long.
const longJournal = 500

// mostLatest bounds the memory: it takes about 200 bytes for a kind of row of a task.
const mostLatest = 20_000

// latestKey names a kind of row of a task.
type latestKey struct {
	config.TypeKey
	id   int64
	kind string // see optionsKind, contextKind, outputKind
}

const (
	optionsKind = "options"
	contextKind = "context"
)

// outputKind is the kind of the rows with the output of a stage: under all of its names. Many names
// become a hash: each task of the type keeps the text.
func outputKind(t *config.Type, stage string) string {
	names := t.NamesOf(stage)
	slices.Sort(names[1:])
	kind := strings.Join(names, "\x00")
	if len(names) > 1 {
		sum := sha256.Sum256([]byte(kind))
		kind = "\x00" + string(sum[:])
	}
	return "output\x00" + kind
}

// latest is what is known of a kind of row. It counts only while the row at which the look ended is
// still there with its time: a database that is back at an earlier time may hold other rows by now.
type latest struct {
	until int16 // the seq of the last row that was looked at; 0: none
	at    time.Time
	row   int16 // the seq of the latest row of the kind; 0: there is none
}

// latestRows is what a node knows of long journals.
type latestRows struct {
	mu    sync.Mutex
	known map[latestKey]latest
}

// note remembers what was found, unless the journal is short.
func (r *latestRows) note(key latestKey, l latest) {
	if l.until < longJournal {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[latestKey]latest{}
	}
	if len(r.known) >= mostLatest {
		for some := range r.known {
			delete(r.known, some)
			break
		}
	}
	r.known[key] = l
}

// args returns what is known, as three arrays: the columns until, at and row of LatestSQL.
func (r *latestRows) args(keys []latestKey) []any {
	all := make([]latest, len(keys))
	r.mu.Lock()
	for i, key := range keys {
		all[i] = r.known[key]
	}
	r.mu.Unlock()
	return []any{records.Column(all, func(l *latest) int16 { return l.until }),
		postgres.Moments(records.Column(all, func(l *latest) *postgres.Moment {
			return (*postgres.Moment)(&l.at)
		})),
		records.Column(all, func(l *latest) int16 { return l.row })}
}

// topSQL finds the last journal row of task u.id.
const topSQL = `LATERAL (
  SELECT seq, at FROM {journal} WHERE type = $2 AND id = u.id ORDER BY seq DESC LIMIT 1)`

// LatestSQL finds the latest journal row j of task u.id for which a condition holds, with a column.
// hint is what is known of it.
func LatestSQL(column, condition, hint string) string {
	return strings.NewReplacer("{column}", column, "{condition}", condition, "{hint}", hint).
		Replace(`LATERAL (
  SELECT coalesce((SELECT k.seq FROM {journal} k
    WHERE k.type = $2 AND k.id = u.id AND k.seq = {hint}_until AND k.at = {hint}_at LIMIT 1),
    0) AS seq LIMIT 1) {hint}_known LEFT JOIN LATERAL (
  SELECT * FROM (
    (SELECT j.seq, j.{column} FROM {journal} j
     WHERE j.type = $2 AND j.id = u.id AND j.seq > {hint}_known.seq AND {condition}
     ORDER BY j.seq DESC LIMIT 1)
    UNION ALL
    (SELECT j.seq, j.{column} FROM {journal} j
     WHERE j.type = $2 AND j.id = u.id AND j.seq = {hint}_row AND {condition} LIMIT 1)) found
  ORDER BY seq DESC LIMIT 1)`)
}

// Latest is what a node knows of a task's options and context, for statements of other packages.
type Latest struct {
	rows *latestRows
	keys [2]latestKey // of options and context
}

// LatestOf returns what is known of a task.
func LatestOf(p *Path, t *config.Type, id int64) Latest {
	return Latest{&p.latest, [2]latestKey{{t.Key(), id, optionsKind}, {t.Key(), id, contextKind}}}
}

// Args returns the arguments of LatestSQL for the options, then those for the context. Each is an
// array with one entry.
func (l Latest) Args() []any {
	return slices.Concat(l.rows.args(l.keys[:1]), l.rows.args(l.keys[1:]))
}

// Note remembers the rows that a statement found. until is the last row of the journal, with its
// time. A context of nil says that the statement didn't look for it.
func (l Latest) Note(until int, at time.Time, options int16, context *int16) {
	l.rows.note(l.keys[0], latest{int16(until), at, options})
	if context != nil {
		l.rows.note(l.keys[1], latest{int16(until), at, *context})
	}
}
