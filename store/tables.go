package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// tables are the qualified, quoted names of the tables of a table set, and of those that all types
// of its tenant share.
type tables struct {
	schema string
	set    string   // its name
	filled sync.Map // of filledKey to string: statements with the names in them
}

type filledKey struct {
	sql      string
	position int
}

func newTables(tenant, set string) *tables { return &tables{schema: schemaOf(tenant), set: set} }

func (t *tables) qualify(table string) string { return quote(t.schema) + "." + quote(table) }

// rolled returns the name of a table of a roll: kind_position for the set that types share,
// otherwise kind_type_position. The names of types begin with a letter.
func (t *tables) rolled(kind string, position int) string {
	if t.set == sharedSet {
		return t.qualify(fmt.Sprintf("%s_%d", kind, position))
	}
	return t.qualify(fmt.Sprintf("%s_%s_%d", kind, t.set, position))
}

func (t *tables) task(position int) string    { return t.rolled("task", position) }
func (t *tables) journal(position int) string { return t.rolled("journal", position) }
func (t *tables) ready(position int) string   { return t.rolled("ready", position) }

// createRoll returns the script that makes the tables of one roll. type is the number of the
// task type of a row. There are no CHECK constraints: Postgres reads their text anew for each
// statement (those of a journal row took 8 of the 13 µs of its insert).
func (t *tables) createRoll(position int) string {
	return t.at(position, `
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
CREATE INDEX ON {ready} (type, key, order_time, id) WHERE key IS NOT NULL`)
}

// at returns a statement in which the names in braces are replaced by the tables at a position.
func (t *tables) at(position int, sql string) string {
	key := filledKey{sql, position}
	if full, ok := t.filled.Load(key); ok {
		return full.(string)
	}
	full := strings.ReplaceAll(sql, "{options}", latestOptions)
	full = strings.NewReplacer("{lease}", t.qualify("lease"), "{wait}", t.qualify("wait"),
		"{task}", t.task(position), "{journal}", t.journal(position), "{ready}", t.ready(position),
		"{keys}", t.qualify("idempotency_keys"), "{claim}", t.qualify("claim_keys"),
		"{past_keys}", t.qualify("past_keys"),
		"{types}", t.qualify("task_types"), "{sets}", t.qualify("table_sets"),
		"{rolls}", t.qualify("rolls"), "{retired}", t.qualify("retired_types"),
		"{deleted}", t.qualify("deleted_types"), "{locks}", t.qualify("locks"),
		"{tallies}", t.qualify("tallies"),
		"{outbox}", t.qualify("outbox"), "{edges}", t.qualify("edges"),
		"{fan_outs}", t.qualify("fan_outs"),
		"{claim_windows}", t.qualify("claim_windows"), "{claim_stages}", t.qualify("claim_stages"),
		"{votes}", t.qualify("votes"), "{voters}", t.qualify("voters"),
		"{blocks}", t.qualify("flow_blocks"), "{hot}", hotTable, "{cold}", coldTable).Replace(full)
	t.filled.Store(key, full)
	return full
}

// latestOptions has the options of a task t: those of its last change, otherwise its own.
const latestOptions = `coalesce((SELECT o.options FROM {journal} o WHERE o.type = t.type ` +
	`AND o.id = t.id AND o.options IS NOT NULL ORDER BY o.seq DESC LIMIT 1), t.options)`

// at returns a statement in which the names in braces are replaced by the tables that have the
// type's rows at a position; {readies} by all rows of its live ready tables. At position 0 there
// are no rolled tables.
func (t *Type) at(position int, sql string) string {
	if strings.Contains(sql, "{readies}") {
		sql = strings.ReplaceAll(sql, "{readies}", t.readies())
	}
	return t.setAt(position).tables.at(position, sql)
}

// readies returns an expression for all rows of the type's live ready tables, and of other types in
// them.
func (t *Type) readies() string {
	return "(" + strings.Join(t.readySelects(), " UNION ALL ") + ")"
}

// readySelects returns a SELECT for each of the type's live ready tables.
func (t *Type) readySelects() (all []string) {
	for _, p := range t.live() {
		all = append(all,
			"SELECT type, order_time, id, seq, stage, attempt, key, since FROM "+t.setAt(p).tables.ready(p))
	}
	return all
}

// tokenTables returns the tables in which live tasks of the type have a row.
func (t *Type) tokenTables() []string {
	all := []string{t.set.tables.qualify("lease"), t.set.tables.qualify("wait")}
	for _, p := range slices.Backward(t.live()) {
		all = append(all, t.setAt(p).tables.ready(p))
	}
	return all
}
