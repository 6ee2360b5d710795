package tasks

import (
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// contentCursor is a row of content_cursors.
type contentCursor struct {
	upto, passed int64
	closing      bool
}

func (c contentCursor) position() int { return asyncflow.TaskID{Number: c.upto}.Position() }

// visited is a task as a visit finds it.
type visited struct {
	id      int64
	created time.Time
	erased  bool
	ended   *time.Time // nil: it is live
	rows    int        // of its journal, about
	bytes   int64      // of its contents, if they are due
}

// visitSQL reads tasks: since when, whether they are final, and how much of them would be erased if
// they had ended by $3.
const visitSQL = `
SELECT t.id, t.created_at, t.options -> 'erased' IS NOT NULL, j.at, coalesce(j.seq, 0)::int,
  CASE WHEN j.at <= $3 THEN octet_length(t.context) + (
    SELECT coalesce(sum(coalesce(octet_length(o.output), 0)
      + coalesce(octet_length(o.error), 0)), 0)
    FROM {journal} o WHERE o.type = t.type AND o.id = t.id) ELSE 0 END
FROM {visited} t LEFT JOIN LATERAL (
  SELECT CASE WHEN l.final <> '' THEN l.at END AS at, l.seq FROM {journal} l
  WHERE l.type = t.type AND l.id = t.id ORDER BY l.seq DESC LIMIT 1) j ON true
ORDER BY t.id`

// What visitSQL visits: the next tasks of a cursor, or some tasks by their ids. For the form of the
// latter see records.TakeAnyWaitSQL.
const (
	nextSQL = `(SELECT * FROM {task} WHERE type = $1 AND id > $2 AND id <= $4
  ORDER BY id LIMIT $5)`
	someSQL = `(SELECT t.* FROM unnest($2::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $1 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t)`
)

var (
	visitNextSQL = strings.Replace(visitSQL, "{visited}", nextSQL, 1)
	VisitSomeSQL = strings.Replace(visitSQL, "{visited}", someSQL, 1)
)

// visit reads tasks of one roll, by number.
func (x *aging) visit(position int, sql string, args ...any) (all []visited, err error) {
	rows, _ := x.tx.Query(x.ctx, x.t.SQL(position, sql), append([]any{x.t.Number()}, args...)...)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (v visited, err error) {
		err = row.Scan(&v.id, &v.created, &v.erased, &v.ended, &v.rows, &v.bytes)
		return v, err
	})
}

// plan says what becomes of visited tasks.
type plan struct {
	erase       []int64
	rows        int
	bytes       int64
	waits       []int64 // are kept in content_waits
	waitsSince  []time.Time
	without     []int64 // without contents
	mostReached bool    // nothing more may be erased in this step
}

// add plans for a task that is live, or final; it reports whether there is no room for it in the
// step.
func (p *plan) add(x *aging, v visited) (full bool) {
	switch {
	case v.erased:
		p.without = append(p.without, v.id)
	case v.ended == nil:
		p.wait(v.id, x.now)
	case x.due(*v.ended).After(x.now):
		p.wait(v.id, *v.ended)
	case len(p.erase) > 0 && (len(p.erase) == agedTasks || p.rows+v.rows > agedRows ||
		p.bytes+v.bytes > agedBytes):
		p.mostReached = true
		return true
	default:
		p.erase = append(p.erase, v.id)
		p.rows += v.rows
		p.bytes += v.bytes
	}
	return false
}

func (p *plan) wait(id int64, since time.Time) {
	p.waits = append(p.waits, id)
	p.waitsSince = append(p.waitsSince, since)
}

// DueWaitsSQL reads the tasks of a roll in content_waits that are due for longest.
const DueWaitsSQL = `
SELECT id FROM {content_waits} WHERE type = $1 AND id >> 40 BETWEEN $4 AND $4 AND since <= $2
ORDER BY id >> 40, since LIMIT $3`

// visitWaits visits the tasks of content_waits of one roll that are due for longest.
func (x *aging) visitWaits(position int) error {
	rows, _ := x.tx.Query(x.ctx, x.t.SQL(0, DueWaitsSQL), x.t.Number(), x.now.Add(-x.keep),
		agedTasks, position)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		return err
	}
	x.position = position
	if !x.t.Has(position) { // the roll was dropped
		return x.write(plan{without: ids})
	}
	found, err := x.visit(position, VisitSomeSQL, ids, x.now.Add(-x.keep))
	if err != nil {
		return err
	}
	var p plan
	left := ids
	for _, v := range found {
		left = slices.DeleteFunc(left, func(id int64) bool { return id == v.id })
		p.add(x, v)
	}
	p.without = append(p.without, left...) // a compaction left them out
	return x.write(p)
}

// advance takes a cursor over the next tasks.
func (x *aging) advance(c contentCursor) error {
	position := c.position()
	if !x.t.Has(position) {
		_, err := x.tx.Exec(x.ctx, x.t.SQL(0, `DELETE FROM {content_cursors}
			WHERE type = $1 AND upto = $2`), x.t.Number(), c.upto)
		return err
	}
	found, err := x.visit(position, visitNextSQL, c.passed, x.now.Add(-x.keep), c.upto, agedWindow)
	if err != nil {
		return err
	}
	var p plan
	var since *time.Time // nil: it is due again at once
	hold := min(x.keep/100, mostHold)
	for _, v := range found {
		if x.due(v.created).After(x.now) {
			since = &v.created
			break
		}
		// Only tasks that ended soon after their submit hold the cursor, so that it is never behind
		// by more than hold.
		soon := v.ended != nil && !v.erased && !v.ended.After(v.created.Add(hold))
		if soon && x.due(*v.ended).After(x.now) {
			since = v.ended
			break
		}
		if p.add(x, v) {
			break
		}
		c.passed = v.id
	}
	if err := x.write(p); err != nil {
		return err
	}
	if since == nil && !p.mostReached && len(found) < agedWindow {
		return x.end(c, position)
	}
	_, err = x.tx.Exec(x.ctx, x.t.SQL(0, `UPDATE {content_cursors}
		SET passed = $3, since = coalesce($4, since) WHERE type = $1 AND upto = $2`), x.t.Number(),
		c.upto, c.passed, since)
	return err
}

// end ends a pass over a roll. Some numbers come a little later than the next ones, and numbers of
// long transactions much later. So once the roll is sealed, another pass looks for what was missed.
func (x *aging) end(c contentCursor, position int) error {
	_, err := x.tx.Exec(x.ctx, x.t.SQL(0, `UPDATE {content_cursors} c
		SET passed = CASE WHEN r.sealed AND NOT c.closing THEN c.upto - $4 ELSE $5 END,
		  since = CASE WHEN NOT r.sealed THEN $3 WHEN c.closing THEN 'infinity' ELSE c.since END,
		  closing = r.sealed
		FROM (SELECT sealed_at IS NOT NULL AS sealed FROM {rolls}
		  WHERE table_set = $6 AND position = $7) r
		WHERE c.type = $1 AND c.upto = $2`), x.t.Number(), c.upto, x.now, asyncflow.FirstBySQL,
		c.passed, x.t.SetAt(position).Name, position)
	return err
}

// TakeContentWaitsSQL is written like records.TakeAnyWaitSQL.
const TakeContentWaitsSQL = `
DELETE FROM {content_waits} WHERE ctid = ANY (ARRAY(
  SELECT k.t FROM unnest($2::bigint[]) AS u (id), LATERAL (
    SELECT ctid AS t FROM {content_waits} WHERE type = $1 AND id BETWEEN u.id AND u.id
    ORDER BY id LIMIT 1 FOR UPDATE) k))`

// write erases what is planned, and writes down what is kept.
func (x *aging) write(p plan) error {
	if len(p.erase) > 0 {
		done, refused, err := x.s.eraseAll(x.ctx, x.tx, x.t, p.erase,
			asyncflow.Erasure{At: x.now, By: asyncflow.RetentionErases})
		if err != nil {
			return err
		}
		x.erased = append(x.erased, done...)
		x.step.Locked = true
		x.step.Done += len(done)
		again := min(x.keep, mostAgain)
		for _, id := range p.erase {
			if refused[id] != nil {
				p.wait(id, x.now.Add(again-x.keep))
			} else {
				p.without = append(p.without, id)
			}
		}
	}
	b := &pgx.Batch{}
	records.QueueTake(b, func(pgx.Rows) error { return nil }, x.t.SQL(0, TakeContentWaitsSQL),
		x.t.Number(), p.without)
	b.Queue(x.t.SQL(0, `
		INSERT INTO {content_waits} (type, id, since)
		SELECT $1, id, since FROM unnest($2::bigint[], $3::timestamptz[]) AS u (id, since)
		ON CONFLICT (type, id) DO UPDATE SET since = excluded.since`), x.t.Number(), p.waits,
		p.waitsSince)
	return x.tx.SendBatch(x.ctx, b).Close()
}
