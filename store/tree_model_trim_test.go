package store_test

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow/store"
)

// dbTask names a task by the number of its type.
type dbTask struct {
	number int32
	id     int64
}

// trim trims all rolls at the end of a run, as if the retention of all final tasks were over, on a
// node that may lose its connections. The tasks stay that live ones need, and nothing is left of
// the others.
func (m *treeMachine) trim(t *rapid.T) {
	before := m.dbTasks()
	needed := m.dbNeeded(before)
	want := map[dbTask]bool{}
	for task := range needed {
		want[task] = before[task]
	}
	done := map[string]bool{}
	for _, name := range m.types {
		set := m.kind(name).Set()
		for position := set.First; position <= set.End && !done[set.Name]; position++ {
			m.trimRoll(t, set, position)
		}
		done[set.Name] = true
	}
	require.Equal(m.t, want, m.dbTasks())
	for task := range before {
		if !needed[task] {
			require.Zero(m.t, m.rowsOf(task), "of %v", task)
		}
	}
}

// trimRoll takes a pass over a roll.
func (m *treeMachine) trimRoll(t *rapid.T, set *store.TableSet, position int) {
	ctx := m.b.t.Context()
	m.b.exec(`UPDATE tenant_acme.rolls SET trim_at = now() - interval '1 s'
		WHERE table_set = $1 AND position = $2`, set.Name, position)
	node, end := m.node(t)
	_, err := node.TrimRoll(ctx, set, position, m.b.Clock.Now())
	end()
	require.True(m.t, err == nil || node == m.mortal, "%v", err)
	eventually(m.b.t, "the pass ends", func() bool { // Postgres notices a cut a little later
		_, err := m.b.TrimRoll(ctx, set, position, m.b.Clock.Now())
		require.NoError(m.t, err)
		return m.b.count(`SELECT count(*) FROM tenant_acme.rolls WHERE trim_at <= now()`) == 0
	})
}

// dbTasks returns the tasks in the database, and whether each is live.
func (m *treeMachine) dbTasks() map[dbTask]bool {
	all := map[dbTask]bool{}
	for _, name := range m.types {
		kind := m.kind(name)
		for _, position := range kind.Rolls() {
			m.eachTask(fill(kind, position, `SELECT t.type, t.id, coalesce((SELECT final FROM {journal} j
				WHERE j.type = t.type AND j.id = t.id ORDER BY seq DESC LIMIT 1), '') = ''
				FROM {task} t WHERE type = {number} ORDER BY t.id`),
				func(task dbTask, live bool) { all[task] = live })
		}
	}
	return all
}

// dbNeeded returns the tasks that are live, and those that these need.
func (m *treeMachine) dbNeeded(all map[dbTask]bool) map[dbTask]bool {
	needed := map[dbTask]bool{}
	for task, live := range all {
		if live {
			needed[task] = true
			m.eachTask(`SELECT on_type, on_id, true FROM tenant_acme.edges
				WHERE type = $1 AND id = $2 AND on_id IS NOT NULL`,
				func(on dbTask, _ bool) {
					if _, ok := all[on]; ok {
						needed[on] = true
					}
				}, task.number, task.id)
		}
	}
	m.eachTask(`SELECT type, id, true FROM tenant_acme.outbox WHERE kind = 'final'`,
		func(task dbTask, _ bool) { needed[task] = true })
	for _, parent := range m.order { // parents come before their children
		number := m.kind(parent.id.Type).Number()
		if !needed[dbTask{number, parent.id.Number}] {
			continue
		}
		for _, f := range m.families {
			for _, c := range f.children {
				if f.parent == parent {
					needed[dbTask{number, c.id.Number}] = true
				}
			}
		}
	}
	return needed
}

// rowsOf counts the rows of a task in tables of all rolls.
func (m *treeMachine) rowsOf(task dbTask) (n int) {
	require.NoError(m.t, m.b.db.QueryRow(m.b.t.Context(), `SELECT
		(SELECT count(*) FROM tenant_acme.edges WHERE type = $1 AND id = $2)
		+ (SELECT count(*) FROM tenant_acme.fan_outs WHERE type = $1 AND id = $2)
		+ (SELECT count(*) FROM tenant_acme.notifications WHERE type = $1 AND id = $2)
		+ (SELECT count(*) FROM tenant_acme.idempotency_keys k JOIN tenant_acme.task_types t
		  ON t.name = k.type WHERE t.number = $1 AND k.id = $2)`, task.number, task.id).Scan(&n))
	return n
}

// eachTask calls do with each row of a statement.
func (m *treeMachine) eachTask(sql string, do func(task dbTask, flag bool), args ...any) {
	rows, err := m.b.db.Query(m.b.t.Context(), sql, args...)
	require.NoError(m.t, err)
	defer rows.Close()
	for rows.Next() {
		var task dbTask
		var flag bool
		require.NoError(m.t, rows.Scan(&task.number, &task.id, &flag))
		do(task, flag)
	}
	require.NoError(m.t, rows.Err())
}
