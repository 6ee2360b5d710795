package tasks

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Filter says which tasks to list.
type Filter struct {
	Type   string           // "": all types of the tenant
	Status asyncflow.Status // "": any
	Stage  string           // in which it is, or ended; "": any
	Error  string           // a part of its last error, in any case; "": any
	Key    string           // its idempotency key, while the key is kept; "": any
	Text   string           // a part of its context or of an output, as it is written; "": any
	Since  time.Time        // submitted at or after; zero: any time
	Until  time.Time        // submitted before; zero: any time
	// EndedSince and EndedUntil select final tasks: ended at or after, and before; zero: any.
	EndedSince, EndedUntil time.Time
	Attempts               int    // its stage is in this attempt or a later one; 0: any
	Code                   string // of its last error, see asyncflow.ErrorCode; "": any
	FlowKey                string // "": any
	Worker                 string // that ran it, or one of its attempts; "": any
	Labels                 LabelFilter
	IDs                    []asyncflow.TaskID // only of operations: these tasks; none: any
	Fingerprint            string             // of the last error, see asyncflow; "": any

	Parent asyncflow.TaskID // children of this task, of all its fan-outs; zero: any tasks
	// Latest leaves out children of earlier fan-outs of Parent, and other tasks that it started.
	Latest bool
	// NoChildren leaves out the children of fan-outs. It excludes Parent.
	NoChildren bool
	// Reverse lists from the other end: the oldest task first, and the last type.
	Reverse bool
	// After is for the next page: only tasks behind this number in the list; 0: the first page. Of
	// all types, FromType is the one with this number: there are no types before it on the page.
	After    int64
	FromType string
	Limit    int
}

// LabelFilter selects tasks by their asyncflow.Labels.
type LabelFilter struct {
	User        string   `json:"user,omitempty"`     // "": any
	Tags        []string `json:"tags,omitempty"`     // all of them
	AnyTags     []string `json:"any_tags,omitempty"` // one of them; none: any
	Name, Value string   // an entry of the metadata; no name: any
}

// IsZero reports whether it selects all tasks.
func (l LabelFilter) IsZero() bool {
	return l.User == "" && len(l.Tags) == 0 && len(l.AnyTags) == 0 && l.Name == ""
}

// check returns what is wrong with a filter, or nil.
func (f Filter) check() error {
	switch {
	case f.Code != "" && !asyncflow.IsErrorCode(f.Code):
		return asyncflow.InvalidField("code", "must be up to %d letters, digits and . _ -, "+
			"such as 503, 5xx, timeout or lost", asyncflow.MaxErrorCode)
	case f.Worker != "" && asyncflow.WorkerName(f.Worker) == "":
		return asyncflow.InvalidField("worker", "must be up to %d printable ASCII characters "+
			"without spaces, as a worker's name is", asyncflow.MaxWorkerName)
	case f.Fingerprint != "" && !asyncflow.IsFingerprint(f.Fingerprint):
		return asyncflow.InvalidField("fingerprint",
			"must be 16 hexadecimal digits in lower case, as failures shows them")
	case backwards(f.Since, f.Until):
		return asyncflow.InvalidField("until", "is not after since")
	case backwards(f.EndedSince, f.EndedUntil):
		return asyncflow.InvalidField("ended_until", "is not after ended_since")
	}
	return f.checkIDs()
}

// maxFilterIDs is the most ids that a filter may name.
const maxFilterIDs = 1000

// checkIDs returns what is wrong with the ids of a filter of one type, or nil.
func (f Filter) checkIDs() error {
	if n := len(f.IDs); n > maxFilterIDs {
		return asyncflow.InvalidField("ids", "has %d ids; the limit is %d", n, maxFilterIDs)
	}
	return nil
}

// backwards reports whether no time is in a range.
func backwards(since, until time.Time) bool {
	return !since.IsZero() && !until.IsZero() && !since.Before(until)
}

// criteria choose tasks of a type.
type criteria struct {
	statuses    []string // nil: any
	stage       string
	text        string // in the last error
	content     string // in the context or an output
	bytes       int    // of contexts and outputs that may be in a window, for content
	since       time.Time
	until       time.Time
	endedSince  time.Time // zero: at any time, or not at all
	endedUntil  time.Time // it ended before; zero: at any time, or not at all
	endedBefore time.Time // like endedUntil, by when an operation began
	attempts    int
	code        string
	flowKey     string
	worker      string
	labels      LabelFilter
	key         string             // only of operations: walks find it
	parent      asyncflow.TaskID   // only of operations: walks find it
	ids         []asyncflow.TaskID // only of operations: these tasks; none: any
	noChildren  bool               // no children of fan-outs
	unerased    bool               // tasks with their contents
	fewReady    bool               // at most fewReady tasks are ready
	idle        map[int]bool       // positions of rolls where nothing happened since endedSince
	keys        []searchKey        // by which tasks may be found where fields are searchable
	best        map[int][]int64    // by the position of a roll: the entries that are best there
	entries     []int64            // of the roll that is read; nil: none count there
	fingerprint string             // of the last error
	members     map[string]int     // tasks of the window with the fingerprint
	reverse     bool               // windows hold the first candidates, not the last
}

func criteriaOf(f Filter) criteria {
	c := criteria{stage: f.Stage, text: f.Error, content: f.Text, since: f.Since, until: f.Until,
		endedSince: f.EndedSince, endedUntil: f.EndedUntil, attempts: f.Attempts, code: f.Code,
		flowKey: f.FlowKey, worker: f.Worker, labels: f.Labels, noChildren: f.NoChildren,
		fingerprint: f.Fingerprint, reverse: f.Reverse}
	if f.Status != "" {
		c.statuses = []string{string(f.Status)}
	}
	return c
}

// fewReady is how many rows of ready are few enough to sort them for each window.
const fewReady = 5000

// criteriaFor returns the criteria of a filter, as learned for the present tables.
func (s *lists) criteriaFor(ctx context.Context, t *config.Type, f Filter) (criteria, error) {
	c := criteriaOf(f)
	return c, c.learn(ctx, s.core.DB(t.Tenant), t)
}

// learn finds out in which rolls nothing ended in time, whether few tasks are ready, and by which
// searchable fields tasks may be found, if these matter. The latter two decide only which table the
// candidates come from. They are complete either way, so the numbers may change meanwhile.
func (c *criteria) learn(ctx context.Context, db postgres.Querier, t *config.Type) (err error) {
	if !c.endedSince.IsZero() {
		if c.idle, err = idleRolls(ctx, db, t, c.endedSince); err != nil {
			return err
		}
	}
	if slices.Contains(c.among(), asyncflow.StatusPending) {
		err := db.QueryRow(ctx, t.SQL(0, `SELECT count(*) <= $1
			FROM (SELECT FROM {readies} r WHERE type = $2 LIMIT $1::int + 1) r`),
			fewReady, t.Number()).Scan(&c.fewReady)
		if err != nil {
			return err
		}
	}
	if t.SearchFrom() != nil {
		c.learnKeys(t)
	}
	return nil
}

// idleRolls returns the positions of the rolls in which nothing happened since a time.
func idleRolls(
	ctx context.Context, db postgres.Querier, t *config.Type, since time.Time,
) (idle map[int]bool, err error) {
	idle = map[int]bool{}
	rows, err := db.Query(ctx, t.SQL(0,
		`SELECT table_set, position FROM {rolls} WHERE idle_since < $1`), since)
	if err != nil {
		return nil, err
	}
	var set string
	var position int
	_, err = pgx.ForEachRow(rows, []any{&set, &position}, func() error {
		if t.SetAt(position).Name == set {
			idle[position] = true
		}
		return nil
	})
	return idle, err
}

// among returns the statuses in which the tasks may be, nil for any. A task that succeeded has no
// last error, and only final tasks end.
func (c criteria) among() []asyncflow.Status {
	erred := c.text != "" || c.code != "" || c.fingerprint != ""
	if c.statuses == nil && !erred && !c.ended() {
		return nil
	}
	var statuses []asyncflow.Status
	for _, status := range asyncflow.Statuses {
		switch {
		case c.statuses != nil && !slices.Contains(c.statuses, string(status)):
		case c.statuses == nil && erred && status == asyncflow.StatusSucceeded:
		case c.statuses == nil && c.ended() && !status.Final():
		default:
			statuses = append(statuses, status)
		}
	}
	return statuses
}

// ended reports whether the tasks are final ones of a range of time.
func (c criteria) ended() bool { return !c.endedSince.IsZero() || !c.endedUntil.IsZero() }

// statusTables are the tables with a row for each task of a status.
var statusTables = map[asyncflow.Status]string{
	asyncflow.StatusRunning:   `{lease} c WHERE type = $1`,
	asyncflow.StatusWaiting:   `{wait} c WHERE type = $1`,
	asyncflow.StatusPending:   `{readies} c WHERE type = $1`,
	asyncflow.StatusFailed:    otherwise,
	asyncflow.StatusCancelled: otherwise,
}

// otherwise is the table with a row for each task that failed or was cancelled.
const otherwise = `{journal} c WHERE type = $1 AND final <> 'succeeded'`

// candidates returns a query for the ids of all tasks of the type $1 that may meet the criteria,
// within bounds: a condition, an order by id and a limit, such as "id > $2 ORDER BY id LIMIT $3".
// As most tasks have ended, it reads the smallest table that holds them all: live tasks are in the
// token tables, and tasks that failed or were cancelled are in an index of their own. It reads all
// tasks instead of a long backlog: the latest of both are the same. Where a field is searchable,
// they may come from the table search.
func (c criteria) candidates(bounds string) string {
	if c.entries != nil {
		return c.found(bounds)
	}
	from := c.tables()
	if len(from) == 0 {
		from = []string{`{task} c WHERE type = $1`}
	}
	for i, table := range from {
		columns := `id`
		if table == otherwise { // a task may end more than once
			columns = `DISTINCT id`
		}
		from[i] = `(SELECT ` + columns + ` FROM ` + table + ` AND ` + bounds + `)`
	}
	if len(from) == 1 {
		return from[0]
	}
	// Each sets bounds of its own: Postgres would read them whole to sort them together.
	all := strings.Join(from, " UNION ALL ")
	return `(SELECT DISTINCT id FROM (` + all + `) c WHERE ` + bounds + `)`
}

// tables returns the tables that candidates reads; nil is that of all tasks.
func (c criteria) tables() (from []string) {
	for _, status := range c.among() {
		table := statusTables[status]
		if table == "" || status == asyncflow.StatusPending && !c.fewReady {
			return nil
		}
		if !slices.Contains(from, table) {
			from = append(from, table)
		}
	}
	return from
}

// lookedAt returns the statuses of the candidates.
func (c criteria) lookedAt() (statuses []asyncflow.Status) {
	from := c.tables()
	for _, status := range asyncflow.Statuses {
		if from == nil || slices.Contains(from, statusTables[status]) {
			statuses = append(statuses, status)
		}
	}
	return statuses
}

// sql returns a condition on the rows of stateJoins. Its parameters are the values of args,
// numbered from first on.
func (c criteria) sql(first int) string {
	names := []string{"$since", "$until", "$statuses", "$stages", "$text", "$ended"}
	sql := criteriaSQL
	if c.content != "" {
		names = append(names, "$content")
		sql += contentSQL
	}
	if c.noChildren {
		sql += noChildrenSQL
	}
	if c.unerased {
		sql += unerasedSQL
	}
	for _, more := range c.conditions(nil) {
		names = append(names, more.name)
		sql += more.sql
	}
	numbers := make([]string, 0, 2*len(names))
	for i, name := range names {
		numbers = append(numbers, name, "$"+strconv.Itoa(first+i))
	}
	return strings.NewReplacer(numbers...).Replace(sql)
}

const criteriaSQL = `($since::timestamptz IS NULL OR t.created_at >= $since)
  AND ($until::timestamptz IS NULL OR t.created_at < $until)
  AND ($statuses::text[] IS NULL OR ` + statusSQL + ` = ANY ($statuses))
  AND ($stages::text[] IS NULL OR coalesce(l.stage, w.stage, r.stage, j.stage) = ANY ($stages))
  AND ($text = '' OR position(lower($text) IN lower(coalesce(j.error, ''))) > 0)
  AND ($ended::timestamptz IS NULL OR j.at < $ended)`

// noChildrenSQL is a condition on the task. No change of its options makes it a child.
const noChildrenSQL = `
  AND NOT ` + records.IsChildSQL

// unerasedSQL is a condition on the task. To look for the word takes less than to parse options.
const unerasedSQL = `
  AND (t.options IS NULL OR position('"erased"' IN t.options::text) = 0
    OR t.options->'erased' IS NULL)`

// args returns the parameters of sql.
func (c criteria) args(t *config.Type) []any {
	args := []any{postgres.OrNull(c.since), postgres.OrNull(c.until), c.statuses, c.stages(t),
		c.text, postgres.OrNull(c.endedBefore)}
	if c.content != "" {
		args = append(args, c.content)
	}
	for _, more := range c.conditions(t) {
		args = append(args, more.value)
	}
	return args
}

// stages returns the names of the stage in token and journal rows: its own, and the names of
// removed stages that are mapped to it. nil is any stage.
func (c criteria) stages(t *config.Type) []string {
	if c.stage == "" {
		return nil
	}
	return t.NamesOf(c.stage)
}
