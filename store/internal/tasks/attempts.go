package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	// ShortOutput is the size in bytes of the longest output that comes with an attempt when the
	// caller doesn't ask for outputs. A longer output comes as an excerpt of outputExcerpt
	// characters.
	ShortOutput   = 1 << 10
	outputExcerpt = 256
)

// Attempt is a row of a task's journal.
type Attempt struct {
	Seq      int
	At       time.Time // when it ended
	Stage    string
	Attempt  int
	Outcome  asyncflow.OutcomeKind
	Final    asyncflow.Status // the final status that it brought, or ""
	Endpoint string
	Node     string // id of the node that sent it, or handed it out; "": none did, or isn't known
	Worker   string // the name that its worker gave; see asyncflow.WorkerName
	Duration time.Duration
	// Wait is how long the task was due until the attempt began; less than 0: it isn't known, or
	// nothing began.
	Wait     time.Duration
	Status   int // HTTP status; 0: no answer
	Error    string
	Code     string // of the error, see asyncflow.ErrorCode
	Output   json.RawMessage
	NextTime *time.Time
	// Changes are the options that the row changed; nil: none.
	Changes []asyncflow.OptionChange
	// NextStage is the stage with which the task went on after the row, if the type branches.
	NextStage string

	// LeftOut is the size in bytes of an output that is too long for Output. Excerpt is its
	// beginning.
	LeftOut int
	Excerpt string

	long int // its bytes of output and error in a page
}

// AttemptPage says which rows of a journal to read.
type AttemptPage struct {
	After   int  // only rows after this seq
	Limit   int  // the most rows
	Outputs bool // also outputs that are longer than ShortOutput
	Bytes   int  // about the most bytes of outputs and errors; 0: PageBytes
}

// maxBytes returns how many bytes fill the page.
func (p AttemptPage) maxBytes() int { return cmp.Or(p.Bytes, postgres.PageBytes) }

// attemptsSQL reads the rows of a page and one more. A row beyond the bytes of the page comes
// without output, so that only outputs that are shown are read.
const attemptsSQL = `
SELECT seq, at, stage, attempt, outcome, coalesce(final, ''), coalesce(endpoint, ''),
  coalesce(duration, 0), coalesce(status, 0), coalesce(error, ''), next_time,
  CASE WHEN upto - long < $5 AND (size <= $6 OR $4) THEN output END,
  CASE WHEN size > $6 AND NOT $4 THEN size ELSE 0 END,
  CASE WHEN size > $6 AND NOT $4 THEN left(output::text, $7) ELSE '' END,
  long, next_stage, extract(epoch FROM at - due)::float8 - duration, options_before, options_after
FROM (SELECT *, sum(long) OVER (ORDER BY seq) AS upto
  FROM (SELECT *, octet_length(concat(error, options_before, options_after))
      + CASE WHEN $4 THEN size ELSE least(size, $6) END AS long
    FROM (SELECT seq, at, stage, attempt, outcome, final, endpoint, duration, status, error,
        output, next_time, coalesce(octet_length(output::text), 0) AS size,
        CASE WHEN $9 AND ` + hot.WaitsThen + ` THEN ''
          WHEN $9 AND outcome IN ('done', 'joined', 'signalled') THEN ` + hot.WentTo + `
          WHEN $9 AND outcome IN ('failed', 'rejected', 'lost', 'snoozed', 'timed_out')
          THEN coalesce(nullif(` + hot.WentTo + `, stage), '') ELSE '' END AS next_stage,
        CASE WHEN outcome = 'changed' THEN options::text END AS options_after,
        CASE WHEN outcome = 'changed' AND options IS NOT NULL THEN coalesce(
          (SELECT o.options FROM {journal} o WHERE o.type = j.type AND o.id = j.id
            AND o.seq < j.seq AND o.options IS NOT NULL ORDER BY o.seq DESC LIMIT 1),
          (SELECT t.options FROM {task} t WHERE t.type = j.type AND t.id = j.id))::text
        END AS options_before,
        CASE WHEN outcome IN ('done', 'failed', 'rejected', 'snoozed') THEN coalesce(
          (SELECT greatest(p.next_time, p.at) FROM {journal} p
            WHERE p.type = j.type AND p.id = j.id AND p.seq = j.seq - 1),
          (SELECT greatest(t.order_time, t.created_at) FROM {task} t
            WHERE t.type = j.type AND t.id = j.id AND t.options->'depends_on' IS NULL)) END AS due
      FROM {journal} j WHERE type = $8 AND id = $1 AND seq > $2::int ORDER BY seq LIMIT $3) j) k) l
ORDER BY seq`

func (p AttemptPage) args(t *config.Type, id asyncflow.TaskID) []any {
	return []any{id.Number, p.After, p.Limit + 1, p.Outputs, p.maxBytes(), ShortOutput,
		outputExcerpt, t.Number(), t.Branches()}
}

func (p AttemptPage) collect(rows pgx.Rows) ([]Attempt, bool, error) {
	return postgres.CollectPage(rows, p.Limit, p.maxBytes(), scanAttempt,
		func(a Attempt) int { return a.long })
}

// AttemptPage returns a page of a task's journal, oldest first, and whether there are more;
// CodeNotFound when there is no such task.
func (s *Tasks) AttemptPage(
	ctx context.Context, tenant string, id asyncflow.TaskID, p AttemptPage,
) (page []Attempt, more bool, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return nil, false, err
	}
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) (err error) {
		rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(id.Position(), attemptsSQL),
			p.args(t, id)...)
		page, more, err = p.collect(rows)
		return err
	})
	if err == nil && len(page) == 0 { // none yet, or no such task
		_, err = s.Task(ctx, tenant, id)
	}
	return page, more, postgres.Wrap(err, "AttemptPage(%q, %s)", tenant, id)
}

// JournalOf is what belongs to all rows of a task's journal.
type JournalOf struct {
	Erased *asyncflow.Erasure // when and by whom its contents were erased; nil: they are there
	Trace  string             // the W3C traceparent that the task was submitted with; "": none
}

// JournalOf returns what belongs to all rows of a task's journal; nothing if there is no such task.
func (s *Tasks) JournalOf(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (of JournalOf, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return of, postgres.Wrap(err, "JournalOf(%q, %s)", tenant, id)
	}
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		return s.core.DB(tenant).QueryRow(ctx, t.SQL(id.Position(), `
			SELECT options->'erased', coalesce(options->>'trace', '')
			FROM {task} WHERE type = $1 AND id = $2`),
			t.Number(), id.Number).Scan(&of.Erased, &of.Trace)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return of, nil
	}
	return of, postgres.Wrap(err, "JournalOf(%q, %s)", tenant, id)
}

// Attempts returns the whole journal of a task, oldest first; CodeNotFound when there is
// no such task.
func (s *Tasks) Attempts(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (all []Attempt, err error) {
	p := AttemptPage{Limit: 500, Outputs: true}
	for more := true; more; {
		var page []Attempt
		if page, more, err = s.AttemptPage(ctx, tenant, id, p); err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(all) > 0 {
			p.After = all[len(all)-1].Seq
		}
	}
	return all, nil
}

func scanAttempt(row pgx.CollectableRow) (a Attempt, err error) {
	var seconds float32
	var output []byte
	var next *string
	var wait *float64
	var before, after *string
	err = row.Scan(&a.Seq, &a.At, &a.Stage, &a.Attempt, &a.Outcome, &a.Final, &a.Endpoint, &seconds,
		&a.Status, &a.Error, &a.NextTime, &output, &a.LeftOut, &a.Excerpt, &a.long,
		&next, &wait, &before, &after)
	switch {
	case err != nil:
		return a, err
	case next == nil:
		return a, config.ErrElsewhere
	}
	if a.Changes, err = changesOf(before, after); err != nil {
		return a, err
	}
	a.NextStage = *next
	a.Wait = -1
	if wait != nil {
		a.Wait = max(0, time.Duration(*wait*float64(time.Second)))
	}
	a.Endpoint, a.Node, a.Worker = asyncflow.ParseRunLocation(a.Endpoint)
	a.Code = asyncflow.ErrorCode(a.Outcome, a.Status, a.Error)
	a.Status = max(a.Status, 0) // a negative one is why no answer came
	a.Duration = time.Duration(float64(seconds) * float64(time.Second))
	a.Output = output
	return a, err
}

// changesOf returns what differs in the options of a task after a change, as JSON texts; nil: there
// are none.
func changesOf(before, after *string) ([]asyncflow.OptionChange, error) {
	if after == nil {
		return nil, nil
	}
	var from, to asyncflow.Options
	if err := json.Unmarshal([]byte(*after), &to); err != nil {
		return nil, err
	}
	if before != nil {
		if err := json.Unmarshal([]byte(*before), &from); err != nil {
			return nil, err
		}
	}
	return to.ChangesFrom(from), nil
}
