package store

import (
	"fmt"
	"strings"
	"sync"
)

// tables are the qualified, quoted names of a task type's tables.
type tables struct {
	schema string
	name   string
	lease  string
	wait   string
	live   positions // of the live rolls; not set while the type is changed
	filled sync.Map  // of filledKey to string: statements with the names in them
}

type filledKey struct {
	sql      string
	position int
}

func newTables(tenant, name string) *tables {
	t := &tables{schema: schemaOf(tenant), name: name}
	t.lease = t.qualify("lease_" + name)
	t.wait = t.qualify("wait_" + name)
	return t
}

func (t *tables) qualify(table string) string { return quote(t.schema) + "." + quote(table) }

func (t *tables) rolled(kind string, position int) string {
	return t.qualify(fmt.Sprintf("%s_%s_%d", kind, t.name, position))
}

func (t *tables) task(position int) string    { return t.rolled("task", position) }
func (t *tables) journal(position int) string { return t.rolled("journal", position) }
func (t *tables) ready(position int) string   { return t.rolled("ready", position) }

// createType returns the statements that make the tables of a task type that don't roll.
func (t *tables) createType() []string {
	return t.expand(`
CREATE TABLE {lease} (
  id        bigint      PRIMARY KEY,
  seq       smallint    NOT NULL CHECK (seq > 0),
  stage     text        NOT NULL,
  attempt   smallint    NOT NULL CHECK (attempt > 0),
  node      text        NOT NULL,
  leased_at timestamptz NOT NULL,
  until     timestamptz NOT NULL,
  progress  smallint    CHECK (progress BETWEEN 0 AND 100),
  note      text,
  key       text,
  endpoint  uuid
) WITH ({lease settings}, {hot});
CREATE INDEX ON {lease} (key) WHERE key IS NOT NULL;
CREATE TABLE {wait} (
  id         bigint      PRIMARY KEY,
  seq        smallint    NOT NULL CHECK (seq > 0),
  stage      text        NOT NULL,
  attempt    smallint    NOT NULL CHECK (attempt > 0),
  order_time timestamptz NOT NULL,
  reason     text        NOT NULL CHECK (reason IN ('delay', 'retry', 'endpoint', 'flow_key',
                           'endpoint_limit', 'endpoint_unhealthy')),
  key        text,
  until      timestamptz NOT NULL,
  since      timestamptz
) WITH ({hot});
CREATE INDEX ON {wait} (until);
CREATE INDEX ON {wait} (key, order_time, id) WHERE reason = 'flow_key';
CREATE INDEX ON {wait} (key) WHERE key IS NOT NULL AND reason <> 'flow_key';
CREATE INDEX ON {wait} (stage, order_time, id)
  WHERE until = 'infinity' AND reason <> 'flow_key'`, 0)
}

// createRoll returns the statements that make the tables of one roll.
func (t *tables) createRoll(position int) []string {
	return t.expand(`
CREATE TABLE {task} (
  id         bigint      PRIMARY KEY,
  created_at timestamptz NOT NULL,
  order_time timestamptz NOT NULL,
  options    json,
  context    text        NOT NULL
) WITH ({cold});
CREATE TABLE {journal} (
  id        bigint      NOT NULL,
  seq       smallint    NOT NULL CHECK (seq > 0),
  at        timestamptz NOT NULL,
  stage     text        NOT NULL,
  attempt   smallint    NOT NULL CHECK (attempt > 0),
  outcome   text        NOT NULL CHECK (outcome IN ('done', 'failed', 'rejected', 'lost',
                          'released', 'cancelled', 'redriven', 'changed')),
  final     text        CHECK (final IN ('succeeded', 'failed', 'cancelled')),
  endpoint  text,
  duration  real,
  status    smallint,
  error     text,
  output    text,
  next_time timestamptz,
  options   json,
  PRIMARY KEY (id, seq)
) WITH ({cold});
CREATE INDEX ON {journal} (id) WHERE final <> 'succeeded';
CREATE TABLE {ready} (
  order_time timestamptz NOT NULL,
  id         bigint      NOT NULL,
  seq        smallint    NOT NULL CHECK (seq > 0),
  stage      text        NOT NULL,
  attempt    smallint    NOT NULL CHECK (attempt > 0),
  key        text,
  since      timestamptz
) WITH ({hot});
CREATE INDEX ON {ready} (order_time, id);
CREATE INDEX ON {ready} (key, order_time, id) WHERE key IS NOT NULL`, position)
}

// drop returns the statement that drops all tables of a task type.
func (t *tables) drop(at positions) string {
	names := []string{t.lease, t.wait}
	for p := at.first; p <= at.end; p++ {
		names = append(names, t.task(p), t.journal(p), t.ready(p))
	}
	return "DROP TABLE IF EXISTS " + strings.Join(names, ", ")
}

// at returns a statement in which the names in braces are replaced by the tables at a position.
func (t *tables) at(position int, sql string) string {
	key := filledKey{sql, position}
	if full, ok := t.filled.Load(key); ok {
		return full.(string)
	}
	full := strings.NewReplacer("{options}", latestOptions, "{readies}", t.readies()).Replace(sql)
	full = strings.NewReplacer("{lease}", t.lease, "{wait}", t.wait, "{task}", t.task(position),
		"{journal}", t.journal(position), "{ready}", t.ready(position), "{keys}",
		t.qualify("idempotency_keys"), "{claim}", t.qualify("claim_keys"),
		"{tallies}", t.qualify("tallies"), "{blocks}", t.qualify("flow_blocks"), "{lease settings}",
		leaseTable, "{hot}", hotTable, "{cold}", coldTable).Replace(full)
	t.filled.Store(key, full)
	return full
}

// readies returns an expression for all rows of the live ready tables.
func (t *tables) readies() string {
	var selects []string
	for p := t.live.begin; p <= t.live.end; p++ {
		selects = append(selects,
			"SELECT order_time, id, seq, stage, attempt, key, since FROM "+t.ready(p))
	}
	return "(" + strings.Join(selects, " UNION ALL ") + ")"
}

// latestOptions has the options of a task t: those of its last change, otherwise its own.
const latestOptions = `coalesce((SELECT o.options FROM {journal} o WHERE o.id = t.id AND ` +
	`o.options IS NOT NULL ORDER BY o.seq DESC LIMIT 1), t.options)`

// expand divides the statements of a DDL text and fills in the names.
func (t *tables) expand(sql string, position int) []string {
	return strings.Split(strings.TrimSpace(t.at(position, sql)), ";\n")
}
