package config

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// TableNames are the qualified, quoted names of the tables of a table set, and of the tables that
// all types of its tenant share.
type TableNames struct {
	schema string
	set    string   // its name
	filled sync.Map // of filledKey to string: statements with the names in them
}

type filledKey struct {
	sql      string
	position int
}

// NewTables returns the names of the tables of a tenant's table set.
func NewTables(tenant, set string) *TableNames {
	return &TableNames{schema: schema.Of(tenant), set: set}
}

// Qualify returns the qualified, quoted name of a table.
func (t *TableNames) Qualify(table string) string {
	return postgres.Quote(t.schema) + "." + postgres.Quote(table)
}

// rollTable returns the name of a table of a roll: kind_position for the set that types share,
// otherwise kind_type_position. The names of types begin with a letter.
func (t *TableNames) rollTable(kind string, position int) string {
	if t.set == SharedSet {
		return t.Qualify(fmt.Sprintf("%s_%d", kind, position))
	}
	return t.Qualify(fmt.Sprintf("%s_%s_%d", kind, t.set, position))
}

// Task, Journal, Ready and Search return the names of the tables of a roll.
func (t *TableNames) Task(position int) string    { return t.rollTable("task", position) }
func (t *TableNames) Journal(position int) string { return t.rollTable("journal", position) }
func (t *TableNames) Ready(position int) string   { return t.rollTable("ready", position) }
func (t *TableNames) Search(position int) string  { return t.rollTable("search", position) }

// createRoll returns the statements that make the tables of one roll. type is the number of the
// task type of a row. There are no CHECK constraints: Postgres reads their text anew for each
// statement (the constraints of a journal row took 8 of the 13 µs of its insert).
func (t *TableNames) createRoll(position int) []string {
	return strings.Split(t.SQL(position, `
CREATE TABLE {task} (
  type       int         NOT NULL,
  id         bigint      NOT NULL,
  created_at timestamptz NOT NULL,
  order_time timestamptz NOT NULL,
  options    json,
  context    text        NOT NULL,
  PRIMARY KEY (type, id)
) WITH ({cold});
CREATE TABLE {journal} (
  type      int         NOT NULL,
  id        bigint      NOT NULL,
  seq       smallint    NOT NULL,
  at        timestamptz NOT NULL,
  stage     text        NOT NULL,
  attempt   smallint    NOT NULL,
  outcome   text        NOT NULL,
  final     text,
  endpoint  text,
  duration  real,
  status    smallint,
  error     text,
  output    text,
  next_time timestamptz,
  options   json,
  PRIMARY KEY (type, id, seq)
) WITH ({cold});
CREATE INDEX ON {journal} (type, id) WHERE final <> 'succeeded';
CREATE TABLE {ready} (
  type       int         NOT NULL,
  order_time timestamptz NOT NULL,
  id         bigint      NOT NULL,
  seq        smallint    NOT NULL,
  stage      text        NOT NULL,
  attempt    smallint    NOT NULL,
  key        text,
  since      timestamptz
) WITH ({hot});
CREATE INDEX ON {ready} (type, order_time, id);
CREATE INDEX ON {ready} (type, key, order_time, id) WHERE key IS NOT NULL;
CREATE TABLE {search} (
  type  int    NOT NULL,
  entry bigint NOT NULL,
  id    bigint NOT NULL,
  PRIMARY KEY (type, entry, id)
) WITH ({cold})`), ";\n")
}

// SQL returns a statement in which the names in braces are replaced by the tables at a position.
func (t *TableNames) SQL(position int, sql string) string {
	key := filledKey{sql, position}
	if full, ok := t.filled.Load(key); ok {
		return full.(string)
	}
	full := strings.ReplaceAll(sql, "{options}", latestOptions)
	full = strings.NewReplacer("{lease}", t.Qualify("lease"), "{wait}", t.Qualify("wait"),
		"{task}", t.Task(position), "{journal}", t.Journal(position), "{ready}", t.Ready(position),
		"{search}", t.Search(position),
		"{search_entries}", t.Qualify("search_entries"),
		"{keys}", t.Qualify("idempotency_keys"), "{claim}", t.Qualify("claim_keys"),
		"{past_keys}", t.Qualify("past_keys"),
		"{types}", t.Qualify("task_types"), "{type_versions}", t.Qualify("type_versions"),
		"{sets}", t.Qualify("table_sets"),
		"{rolls}", t.Qualify("rolls"), "{retired}", t.Qualify("retired_types"),
		"{deleted}", t.Qualify("deleted_types"), "{locks}", t.Qualify("locks"),
		"{tallies}", t.Qualify("tallies"),
		"{expired_tallies}", t.Qualify("expired_tallies"),
		"{expired_since}", t.Qualify("expired_since"),
		"{outbox}", t.Qualify("outbox"), "{edges}", t.Qualify("edges"),
		"{fan_outs}", t.Qualify("fan_outs"), "{spawns}", t.Qualify("spawns"),
		"{notifications}", t.Qualify("notifications"),
		"{checkpoints}", t.Qualify("checkpoints"),
		"{operations}", t.Qualify("operations"),
		"{content_cursors}", t.Qualify("content_cursors"),
		"{content_waits}", t.Qualify("content_waits"),
		"{lifetimes}", t.Qualify("lifetimes"),
		"{signals}", t.Qualify("signals"), "{signal_waits}", t.Qualify("signal_waits"),
		"{signal_send}", t.Qualify("signal_send"),
		"{claim_windows}", t.Qualify("claim_windows"), "{claim_stages}", t.Qualify("claim_stages"),
		"{votes}", t.Qualify("votes"), "{voters}", t.Qualify("voters"),
		"{blocks}", t.Qualify("flow_blocks"), "{turns}", t.Qualify("flow_turns"),
		"{hot}", hotTable, "{cold}", coldTable).Replace(full)
	t.filled.Store(key, full)
	return full
}

// latestOptions has the options of a task t: the options of its last change, otherwise its own.
const latestOptions = `coalesce((SELECT o.options FROM {journal} o WHERE o.type = t.type ` +
	`AND o.id = t.id AND o.options IS NOT NULL ORDER BY o.seq DESC LIMIT 1), t.options)`

// SQL returns a statement in which the names in braces are replaced by the tables that have the
// type's rows at a position; {readies} by all rows of its live ready tables. At position 0 there
// are no rolled tables.
func (t *Type) SQL(position int, sql string) string {
	if strings.Contains(sql, "{readies}") {
		sql = strings.ReplaceAll(sql, "{readies}", Readies(t))
	}
	return t.SetAt(position).Tables.SQL(position, sql)
}

// Readies returns an expression for all rows of the type's live ready tables, and of other types in
// them.
func Readies(t *Type) string {
	return "(" + strings.Join(ReadySelects(t), " UNION ALL ") + ")"
}

// ReadySelects returns a SELECT for each of the type's live ready tables.
func ReadySelects(t *Type) (all []string) {
	for _, p := range t.Live() {
		all = append(all, "SELECT type, order_time, id, seq, stage, attempt, key, since FROM "+
			t.SetAt(p).Tables.Ready(p))
	}
	return all
}

// TokenTables returns the tables in which live tasks of the type have a row.
func TokenTables(t *Type) []string {
	all := []string{t.set.Tables.Qualify("lease"), t.set.Tables.Qualify("wait")}
	for _, p := range slices.Backward(t.Live()) {
		all = append(all, t.SetAt(p).Tables.Ready(p))
	}
	return all
}

// KeyUntilFinal is when an idempotency key expires that stands for its task until that is final. It
// is a time, as nodes of the version before can't read infinity.
var KeyUntilFinal = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// KeyUntilFinalSQL is KeyUntilFinal in a statement. An index has the keys with it.
const KeyUntilFinalSQL = `'9999-01-01 00:00:00+00'::timestamptz`
