package trees

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// The transaction that ends a task leaves a row of outbox if its end is told. The one that deletes
// the row makes the notification: so there is one for each end, whenever a node dies.

const (
	// targetPause is the least that an end waits for a target that was deleted, and targetPatience
	// how long it waits in all: who deletes a target wants no more of its events.
	targetPause    = 10 * time.Second
	targetPatience = time.Hour
	// targetShare is the part of its age that an end waits: to look at all ends of an hour after
	// each pause would hold up what else is to be followed up.
	targetShare = 4

	// tellBytes is how many bytes of results the notifications have that one transaction makes.
	tellBytes = 1 << 20
)

// toldEnd is the end of a task that is to be told.
type toldEnd struct {
	row     records.OutboxRow
	options asyncflow.Options
	data    asyncflow.FinalTask
	to      *asyncflow.OnFinal
}

// readEndsSQL reads ends of tasks of one roll. Of ends before which the results have $4 bytes it
// reads no result, so that they are left to a later transaction. A result is what the task shows:
// see tasks.resultSQL.
const readEndsSQL = `
SELECT n, before < $4, created_at, options, final, error, at, stage, attempts,
  CASE WHEN before < $4 THEN result END
FROM (SELECT u.n, t.created_at, {options} AS options, j.final, coalesce(j.error, '') AS error, j.at,
    j.stage, (SELECT count(*) FROM {journal} a WHERE a.type = t.type AND a.id = t.id
      AND a.seq <= j.seq AND a.outcome = ANY ($5)) AS attempts, r.result,
    sum(coalesce(octet_length(r.result), 0)) OVER (ORDER BY u.n)
      - coalesce(octet_length(r.result), 0) AS before
  FROM unnest($2::bigint[], $3::smallint[]) WITH ORDINALITY AS u (id, seq, n), LATERAL (
    SELECT * FROM {task} WHERE type = $1 AND id = u.id LIMIT 1) t, LATERAL (
    SELECT * FROM {journal} WHERE type = $1 AND id = u.id AND seq = u.seq AND final IS NOT NULL
    LIMIT 1) j, LATERAL (
    SELECT CASE WHEN j.final = 'succeeded' THEN coalesce(j.output,
      (SELECT o.output FROM {journal} o WHERE o.type = t.type AND o.id = t.id
         AND o.seq < j.seq AND o.output IS NOT NULL ORDER BY o.seq DESC LIMIT 1),
      t.context) END AS result) r) e
ORDER BY n`

// attemptOutcomes are the outcomes of attempts that count.
var attemptOutcomes = []string{string(asyncflow.OutcomeDone), string(asyncflow.OutcomeFailed),
	string(asyncflow.OutcomeRejected), string(asyncflow.OutcomeLost)}

// finalFollowUp is what a FollowUp does about ends that are told.
type finalFollowUp struct{ *followUp }

// followFinals makes the notifications of ends.
func (f finalFollowUp) followFinals(rows []records.OutboxRow) error {
	byType := map[int32][]records.OutboxRow{}
	for _, r := range rows {
		byType[r.Number] = append(byType[r.Number], r)
	}
	byTarget := map[string][]*toldEnd{}
	for _, number := range slices.Sorted(maps.Keys(byType)) {
		t, err := f.typeNow(f.types[number], number)
		if err == nil && t != nil { // else it was deleted, and its tasks with it
			err = f.readEnds(t, byType[number], byTarget)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byTarget)) {
		target, err := f.typeNamed(name)
		if err == nil && (target == nil || target.Notifies == "") {
			f.awaitTarget(byTarget[name])
			continue
		}
		if err != nil {
			return err
		}
		if err = f.notify(target, byTarget[name]); err != nil {
			return err
		}
	}
	return nil
}

// readEnds reads the ends of tasks of a type, by their targets.
func (f finalFollowUp) readEnds(
	t *config.Type, rows []records.OutboxRow, byTarget map[string][]*toldEnd,
) error {
	byRoll := map[int][]records.OutboxRow{}
	for _, r := range rows {
		position := asyncflow.TaskID{Number: r.ID}.Position()
		if t.Has(position) { // else its roll was dropped
			byRoll[position] = append(byRoll[position], r)
		}
	}
	for _, position := range slices.Sorted(maps.Keys(byRoll)) {
		if err := f.readEndsOf(t, position, byRoll[position], byTarget); err != nil {
			return err
		}
	}
	return nil
}

func (f finalFollowUp) readEndsOf(
	t *config.Type, position int, rows []records.OutboxRow, byTarget map[string][]*toldEnd,
) error {
	read, _ := f.tx.Query(f.ctx, t.SQL(position, readEndsSQL), t.Number(),
		records.Column(rows, func(r *records.OutboxRow) int64 { return r.ID }),
		records.Column(rows, func(r *records.OutboxRow) int16 { return int16(r.At) }),
		tellBytes-f.toldBytes, attemptOutcomes)
	var n int
	var whole bool
	var options []byte
	var result *string
	var e toldEnd
	_, err := pgx.ForEachRow(read, []any{&n, &whole, &e.data.CreatedAt, &options, &e.data.Status,
		&e.data.Error, &e.data.FinishedAt, &e.data.Stage, &e.data.Attempts, &result}, func() error {
		end := e
		end.row = rows[n-1]
		if !whole {
			f.outbox = append(f.outbox, again(end.row, time.Time{}))
			return nil
		}
		if options != nil {
			if err := json.Unmarshal(options, &end.options); err != nil {
				return err
			}
		}
		if end.to = t.Tells(&end.options, end.data.Status); end.to == nil {
			return nil // its type no longer tells ends
		}
		end.data.Key = end.options.Key
		end.data.FlowKey = end.options.FlowKey
		end.data.Labels = end.options.Labels
		if result != nil {
			end.data.Result = json.RawMessage(*result)
		}
		f.toldBytes += len(end.data.Result)
		name := end.to.TargetOf()
		byTarget[name] = append(byTarget[name], &end)
		return nil
	})
	return err
}

// again returns a row that is left to a later transaction.
func again(r records.OutboxRow, due time.Time) records.OutboxRow {
	return records.OutboxRow{Kind: r.Kind, Due: due, Number: r.Number, ID: r.ID, At: r.At}
}

// awaitTarget leaves ends without a target to later transactions: it may come again.
func (f finalFollowUp) awaitTarget(ends []*toldEnd) {
	dropped := 0
	for _, e := range ends {
		age := f.now.Sub(e.data.FinishedAt)
		if age > targetPatience {
			dropped++
			continue
		}
		pause := max(targetPause, age/targetShare)
		f.outbox = append(f.outbox, again(e.row, f.now.Add(pause)))
	}
	if dropped > 0 {
		f.s.core.Log.Warn("the target of on_final was deleted; its events are dropped",
			"tenant", f.tenant, "target", ends[0].to.TargetOf(), "events", dropped)
	}
}

// notify makes the notifications of ends, which are tasks of their target.
func (f finalFollowUp) notify(target *config.Type, ends []*toldEnd) error {
	first, err := f.takeNumbers(target, len(ends))
	if err != nil {
		return err
	}
	items := make([]*hot.Insertion, len(ends))
	ids := make([]int64, len(ends))
	for i, e := range ends {
		id := asyncflow.TaskID{Type: f.types[e.row.Number].Name, Number: e.row.ID}
		event := asyncflow.NewFinalEvent(id, e.row.At, e.data)
		task := asyncflow.NewTask{Type: target.Name, Context: event.Document(),
			Options: asyncflow.Options{Notification: &asyncflow.Notification{Event: event.ID,
				Task: id.String(), URL: e.to.URL}}}
		item := hot.NewInsertion(target, first+int64(i), &task, f.now)
		items[i] = &item
		ids[i] = item.ID.Number
	}
	hot.QueueTasks(&f.last, target, items)
	f.last.Queue(f.shared().SQL(0, `INSERT INTO {notifications} (type, id, seq, target, task)
		SELECT u.type, u.id, u.seq, $4, u.task
		FROM unnest($1::int[], $2::bigint[], $3::smallint[], $5::bigint[])
		  AS u (type, id, seq, task)`),
		records.Column(ends, func(e **toldEnd) int32 { return (*e).row.Number }),
		records.Column(ends, func(e **toldEnd) int64 { return (*e).row.ID }),
		records.Column(ends, func(e **toldEnd) int16 { return int16((*e).row.At) }),
		target.Number(), ids)
	changes := f.changesOf(target)
	changes.begin.New = append(changes.begin.New, items...)
	return nil
}
