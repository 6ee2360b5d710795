package tasks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// findings are the tasks that a search found in one window.
type findings struct {
	ids  []int64 // ascending, of one roll
	seen int     // candidates
	last int64   // number after which the search goes on
	over bool    // there are no candidates after it
}

// oldest bounds the candidates of a search: the first $4 ids after $2, before $3.
const oldest = `id > $2 AND id < $3 ORDER BY id LIMIT $4`

// search looks through the next tasks after a number, at most window of them, for tasks that
// meet the criteria. All are of one roll. So the statement is short, however long the history
// and however few tasks meet the criteria.
func search(
	ctx context.Context, tx pgx.Tx, t *config.Type, c criteria, after int64, window int,
) (f findings, err error) {
	if err := c.learn(ctx, tx, t); err != nil {
		return f, err
	}
	only, err := c.holder(ctx, tx, t)
	if err != nil {
		return f, err
	}
	if len(c.ids) > 0 {
		return searchIDs(ctx, tx, t, c, only, after)
	}
	position, ok := t.NextRoll(asyncflow.TaskID{Number: max(after, only-1)}.Position())
	for ok && c.idle[position] {
		position, ok = t.NextRoll(position + 1)
	}
	if !ok || c.key != "" && (only == 0 || after >= only) {
		return findings{last: after, over: true}, nil
	}
	after = max(after, only-1, asyncflow.NewTaskID(t.Name, position, 0).Number)
	end := asyncflow.NewTaskID(t.Name, position+1, 0).Number
	if c.key != "" {
		end = min(end, only+1)
	}
	if c, err = c.inRoll(ctx, tx, t, position); err != nil {
		return f, err
	}
	args := c.bound(t.Number(), after, end, window)
	if c.fingerprint != "" {
		rows, _ := tx.Query(ctx, t.SQL(position, errorsSQL(c.candidates(oldest))),
			c.bound(t.Number(), after, end, errorLook*window)...)
		if err := c.collectMembers(rows); err != nil {
			return f, err
		}
	}
	rows, _ := tx.Query(ctx, t.SQL(position, `
SELECT t.id, coalesce(`+c.sql(len(args)+1)+`, false)
FROM `+c.candidates(oldest)+` c
JOIN {task} t ON t.type = $1 AND t.id = c.id`+stateJoins+`
ORDER BY t.id`), append(args, c.args(t)...)...)
	var id int64
	var meets bool
	_, err = pgx.ForEachRow(rows, []any{&id, &meets}, func() error {
		f.seen++
		f.last = id
		if meets {
			f.ids = append(f.ids, id)
		}
		return nil
	})
	if f.seen < window { // there are no more in the roll
		f.last = end
		f.over = position == t.End || c.key != ""
	}
	return f, err
}

// searchIDs is search for tasks that are named by their ids. It looks at all of them in a roll; if
// a key is asked for, only at the task for which it stands.
func searchIDs(
	ctx context.Context, tx pgx.Tx, t *config.Type, c criteria, only, after int64,
) (f findings, err error) {
	numbers, over := numbersAfter(c.ids, t, after)
	if c.key != "" {
		numbers = slices.DeleteFunc(numbers, func(n int64) bool { return n != only })
		// The task may be of a later roll.
		if !over && len(numbers) == 0 && only > after {
			return findings{last: only - 1}, nil
		}
		over = true
	}
	if len(numbers) == 0 {
		return findings{last: after, over: true}, nil
	}
	args := []any{t.Number(), numbers}
	position := asyncflow.TaskID{Number: numbers[0]}.Position()
	if c.fingerprint != "" {
		rows, _ := tx.Query(ctx,
			t.SQL(position, errorsSQL(`(SELECT unnest($2::bigint[]) AS id)`)), args...)
		if err := c.collectMembers(rows); err != nil {
			return f, err
		}
	}
	rows, _ := tx.Query(ctx, t.SQL(position, `
SELECT t.id
FROM unnest($2::bigint[]) AS c (id) JOIN {task} t ON t.type = $1 AND t.id = c.id`+stateJoins+`
WHERE `+c.sql(len(args)+1)+`
ORDER BY t.id`), append(args, c.args(t)...)...)
	f.ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	f.seen = len(numbers)
	f.last = numbers[len(numbers)-1]
	f.over = over
	return f, err
}

// numbersAfter returns the numbers of the tasks of a type among some ids that are greater than
// after and in a roll that is still there. They ascend, without duplicates, and are of one roll;
// over reports whether there are none in later rolls.
func numbersAfter(
	ids []asyncflow.TaskID, t *config.Type, after int64,
) (numbers []int64, over bool) {
	var all []int64
	for _, id := range ids {
		if id.Type == t.Name && id.Number > after && t.Has(id.Position()) {
			all = append(all, id.Number)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) == 0 {
		return nil, true
	}
	position := asyncflow.TaskID{Number: all[0]}.Position()
	for i, number := range all {
		if (asyncflow.TaskID{Number: number}).Position() != position {
			return all[:i], false
		}
	}
	return all, true
}

// searching runs do in a transaction with the settings of a search.
func (s *lists) searching(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	ctx = postgres.Patient(ctx)
	return pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		postgres.QueueSettings(b, postgres.SearchSettings)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return do(tx)
	})
}

// holder returns the number of the task for which the key stands; 0: there is none, or no key is
// asked for.
func (c criteria) holder(ctx context.Context, db postgres.Querier, t *config.Type) (int64, error) {
	if c.key == "" {
		return 0, nil
	}
	return holderOf(ctx, db, t, c.key)
}

// A filter by fingerprint reads the errors of the candidates of a window before it looks for the
// tasks among them: the fingerprint of an error is known to this program, not to Postgres.

// errorWindow is how many candidates a step of an operation by fingerprint looks at.
const errorWindow = 5000

// errorLook is how many times as many errors of candidates are read as candidates are looked at:
// between the two statements some may end, and then the second one sees later candidates.
const errorLook = 2

// memberSQL holds for tasks with one of the rows of the journal that were found with the
// fingerprint, if that row is still their last one. Postgres finds a name in an object by a binary
// search.
const memberSQL = `
  AND $members::jsonb ? (t.id || '.' || j.seq)`

// errorsSQL selects the last errors of the candidates, as far as a fingerprint reads them. There is
// one of a task that failed without a text, too: its text was erased.
func errorsSQL(candidates string) string {
	return fmt.Sprintf(`
SELECT c.id, j.seq, j.outcome, coalesce(j.status, 0), coalesce(left(j.error, %d), '')
FROM %s c CROSS JOIN LATERAL (SELECT * FROM {journal} j
  WHERE j.type = $1 AND j.id = c.id ORDER BY seq DESC LIMIT 1) j
WHERE j.error IS NOT NULL OR j.final = 'failed'`, asyncflow.FingerprintText+1,
		candidates)
}

// collectMembers collects the rows of errorsSQL with a fingerprint.
func (c *criteria) collectMembers(rows pgx.Rows) error {
	c.members = map[string]int{}
	var id int64
	var seq, answer int
	var outcome asyncflow.OutcomeKind
	var text string
	_, err := pgx.ForEachRow(rows, []any{&id, &seq, &outcome, &answer, &text}, func() error {
		code := asyncflow.ErrorCode(outcome, answer, text)
		if asyncflow.Fingerprint(code, asyncflow.ErrorPattern(text)) == c.fingerprint {
			c.members[strconv.FormatInt(id, 10)+"."+strconv.Itoa(seq)] = 0
		}
		return nil
	})
	return err
}

// withMembers returns the criteria with the tasks of a window by the fingerprint. They stay as they
// are without one. The database ends the statement after the time most; 0: it doesn't.
func (s *lists) withMembers(
	ctx context.Context, t *config.Type, c criteria, least, before int64, window int,
	most time.Duration,
) (criteria, error) {
	if c.fingerprint == "" {
		return c, nil
	}
	plain := c
	plain.content = "" // all candidates of the window, also ones with a text that is not searched
	settings := maps.Clone(postgres.HotSettings)
	if most > 0 {
		settings["statement_timeout"] = strconv.FormatInt(most.Milliseconds(), 10)
	}
	b := &pgx.Batch{}
	b.Queue("BEGIN READ ONLY")
	postgres.QueueSettings(b, settings)
	position := asyncflow.TaskID{Number: before - 1}.Position()
	b.Queue(t.SQL(position, errorsSQL(plain.windowed())),
		plain.bound(t.Number(), least, before, errorLook*window)...).Query(c.collectMembers)
	b.Queue("COMMIT")
	err := s.core.DB(t.Tenant).Send(ctx, b)
	return c, err
}
