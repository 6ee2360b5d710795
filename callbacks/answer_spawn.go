package callbacks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
)

// readSpawn reads the tasks that an answer starts, up to most; null stands for none. Its error
// tells the worker what is wrong. It builds no more tasks than may be: one in memory takes ten
// times the bytes of the shortest text.
func readSpawn(doc json.RawMessage, maxContext, most int) ([]asyncflow.SpawnedTask, error) {
	if isNull(doc) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		return nil, errors.New("the answer's spawn is not an array")
	}
	var tasks []asyncflow.SpawnedTask
	for d.More() {
		if most < asyncflow.MaxSpawn && len(tasks) == most {
			return nil, fmt.Errorf("the results of an answer may start %d tasks together; with "+
				"this result's spawn they would start more", asyncflow.MaxBatchSpawn)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, errors.New("the answer's spawn can't be read: " + plain(err))
		}
		task, err := readSpawned(raw)
		if err != nil {
			return nil, fmt.Errorf("the answer's spawn[%d] is not the JSON object {type, context, "+
				"priority?, run_at?, delay?, retry?, key?, key_window?, flow_key?, claim?, start_by?, "+
				"end_by?}: %s", len(tasks), plain(err))
		}
		if tasks = append(tasks, task); len(tasks) > asyncflow.MaxSpawn {
			break // which CheckSpawned refuses
		}
	}
	if err := asyncflow.CheckSpawned(tasks, time.Now(), maxContext); err != nil {
		return nil, fmt.Errorf("the answer's %w", err)
	}
	return tasks, nil
}

// readJoin reads how the task of an answer waits for the tasks that it starts, and completes its
// outcome.
func readJoin(doc json.RawMessage, o *asyncflow.Outcome) error {
	var join asyncflow.JoinOption
	if err := json.Unmarshal(doc, &join); len(doc) > 0 && err != nil {
		return errors.New("the answer's join " + plain(err))
	}
	if err := o.Joins(join.Join); err != nil {
		return fmt.Errorf("the answer's %w", err)
	}
	return nil
}

// readSpawned reads one task that an answer starts.
func readSpawned(doc json.RawMessage) (t asyncflow.SpawnedTask, err error) {
	err = readObject(doc, func(name string) any {
		switch name {
		case "type":
			return &t.Type
		case "context":
			return &t.Context
		case "priority":
			return &t.Priority
		case "run_at":
			return &t.RunAt
		case "delay":
			return &t.Delay
		case "retry":
			return &t.Retry
		case "key":
			return &t.Key
		case "key_window":
			return &t.KeyWindow
		case "flow_key":
			return &t.FlowKey
		case "claim":
			return &t.Claim
		case "start_by":
			return &t.StartBy
		case "end_by":
			return &t.EndBy
		case "user":
			return &t.User
		case "tags":
			return &t.Tags
		case "metadata":
			return &t.Metadata
		case "trace":
			return &t.Trace
		}
		return nil
	})
	return t, err
}

// isNull reports whether a value is absent, or null, as many libraries write an absent one.
func isNull(doc json.RawMessage) bool { return len(doc) == 0 || string(doc) == "null" }
