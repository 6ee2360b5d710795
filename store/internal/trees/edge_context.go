package trees

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// dependencyContext returns the context of a task with the results of its dependencies. If the
// outputs are longer than MaxInlineResults together, they are left out: they can be read by id.
func (f edgeFollowUp) dependencyContext(t *config.Type, id int64) (json.RawMessage, error) {
	edges, err := f.edgesOf(t, []int64{id})
	if err != nil {
		return nil, err
	}
	fits, err := f.outputsFit(edges)
	if err != nil {
		return nil, err
	}
	outputs := map[taskRef]json.RawMessage{}
	if fits {
		if outputs, err = f.outputs(edges); err != nil {
			return nil, err
		}
	}
	var own []byte
	err = f.tx.QueryRow(f.ctx, t.SQL(asyncflow.TaskID{Number: id}.Position(),
		`SELECT context FROM {task} WHERE type = $1 AND id = $2`), t.Number(), id).Scan(&own)
	return contextDocument(own, edges, outputs), err
}

// contextDocument writes the context of a task with the results of its dependencies. Contexts and
// outputs are passed on byte by byte.
func contextDocument(
	own json.RawMessage, edges []edge, outputs map[taskRef]json.RawMessage,
) json.RawMessage {
	doc := append([]byte(`{"context":`), own...)
	doc = append(doc, `,"dependencies":[`...)
	omitted := false
	for i, e := range edges {
		if i > 0 {
			doc = append(doc, ',')
		}
		doc = append(doc, `{"status":"`+e.shown()+`"`...)
		if id := e.task(); id.Number != 0 {
			doc = append(doc, `,"id":"`+id.String()+`"`...)
		}
		if e.key != "" {
			key, err := json.Marshal(e.key)
			if err != nil {
				panic(err) // a string
			}
			doc = append(append(doc, `,"key":`...), key...)
		}
		if output := outputs[e.on]; output != nil {
			doc = append(append(doc, `,"output":`...), output...)
		} else if e.status.final() == asyncflow.StatusSucceeded {
			omitted = true
		}
		doc = append(doc, '}')
	}
	if doc = append(doc, ']'); omitted {
		doc = append(doc, `,"output_omitted":true`...)
	}
	return append(doc, '}')
}

// dependencyOutputSQL reads the results of succeeded tasks: the latest output, else the context.
const dependencyOutputSQL = `
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id = u.id LIMIT 1) t LEFT JOIN LATERAL (
  SELECT j.output FROM {journal} j
  WHERE j.type = t.type AND j.id = t.id AND j.output IS NOT NULL
  ORDER BY j.seq DESC LIMIT 1) o ON true`

// outputsFit reports whether the results of tasks fit into the context of another one.
func (f edgeFollowUp) outputsFit(edges []edge) (bool, error) {
	sum := 0
	times := map[taskRef]int{} // a task may be depended on several times
	for _, e := range edges {
		times[e.on]++
	}
	err := f.eachOutput(edges, `octet_length(coalesce(o.output, t.context))`,
		func(t *config.Type, rows pgx.Rows) error {
			var id int64
			var n int
			_, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error {
				sum += n * times[taskRef{t.Number(), id}]
				return nil
			})
			return err
		})
	return sum <= asyncflow.MaxInlineResults, err
}

func (f edgeFollowUp) outputs(edges []edge) (map[taskRef]json.RawMessage, error) {
	all := map[taskRef]json.RawMessage{}
	return all, f.eachOutput(edges, `coalesce(o.output, t.context)`,
		func(t *config.Type, rows pgx.Rows) error {
			for rows.Next() {
				var id int64
				var output []byte
				if err := rows.Scan(&id, &output); err != nil {
					return err
				}
				all[taskRef{t.Number(), id}] = output
			}
			return rows.Err()
		})
}

// eachOutput reads something of the results of the edges' tasks that succeeded.
func (f edgeFollowUp) eachOutput(
	edges []edge, what string, read func(t *config.Type, rows pgx.Rows) error,
) error {
	ids := map[int32][]int64{}
	for _, e := range edges {
		if e.status.final() == asyncflow.StatusSucceeded {
			ids[e.on.number] = append(ids[e.on.number], e.on.id)
		}
	}
	for number, ids := range ids {
		t, err := f.typeNow(f.types[number], number)
		if err != nil {
			return err
		}
		for position, ids := range config.ByPosition(ids) {
			if t == nil || !t.Has(position) {
				continue
			}
			sql := t.SQL(position, `SELECT u.id, `+what+dependencyOutputSQL)
			rows, err := f.tx.Query(f.ctx, sql, ids, number)
			if err != nil {
				return err
			}
			if err := read(t, rows); err != nil {
				return err
			}
		}
	}
	return nil
}
