package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/asyncflow/asyncflow"
)

// Decode reads a JSON document into a struct. It is stricter than encoding/json: it refuses
// unknown fields, fields spelled with other capitals, a field that is given twice or is null, text
// that isn't UTF-8 or has a NUL, and anything after the document. It doesn't check values of type
// JSON, which are passed on unread. The error names the field, if there is one, such as
// stages[1].timeout. Decode keeps no part of doc: the caller may overwrite it afterwards.
func Decode(doc []byte, into any) error {
	if !valid(doc) {
		if err := invalid(doc); err != nil {
			return err
		}
	}
	return read(doc, into)
}

// valid does what json.Valid does in a quarter of the time.
func valid(doc []byte) bool {
	return jsontext.Value(doc).IsValid(
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// invalid returns why doc is not a JSON document.
func invalid(doc []byte) error {
	if first := json.NewDecoder(bytes.NewReader(doc)).Decode(new(json.RawMessage)); first == nil {
		return errors.New("there is something after the JSON document")
	}
	return json.Unmarshal(doc, new(json.RawMessage))
}

// read is Decode for a valid document. Package json scans a text two or three times for each level
// of nesting, so read keeps long unchecked values from it.
func read(doc []byte, into any) error {
	switch into := into.(type) {
	case *NewTask:
		return readTask(doc, into)
	case *NewTaskBatch:
		return readBatch(doc, into)
	}
	return readAll(doc, into)
}

func readTask(doc []byte, into *NewTask) error {
	if task, ok := readPlainTask(doc); ok {
		*into = task
		return nil
	}
	from, to := member(doc, "context")
	if to-from < longContext {
		return readAll(doc, into)
	}
	err := readAll(slices.Concat(doc[:from], []byte("0"), doc[to:]), into)
	into.Context = bytes.Clone(doc[from:to])
	return err
}

// readPlainTask reads a task that has only a context and plain texts, as most have. ok is false if
// the task has another field, or if anything is wrong.
func readPlainTask(doc []byte) (task NewTask, ok bool) {
	w := asyncflow.JSONWalk{Doc: doc}
	if w.Enter() != '{' {
		return NewTask{}, false
	}
	for w.Next() {
		name, value := readMember(&w)
		var text *string
		switch string(name) {
		case "context":
			if task.Context != nil {
				return NewTask{}, false
			}
			task.Context = bytes.Clone(value)
			continue
		case "type":
			text = &task.Type
		case "key":
			text = &task.Key
		case "flow_key":
			text = &task.FlowKey
		default:
			return NewTask{}, false
		}
		if *text != "" || !isPlain(value) {
			return NewTask{}, false
		}
		*text = string(value[1 : len(value)-1])
	}
	return task, true
}

// isPlain reports whether a JSON value is a string that is not empty and has no escapes.
func isPlain(value []byte) bool {
	return len(value) > 2 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 &&
		utf8.Valid(value)
}

// longContext is the least length of a context, in bytes, from which cutting it out pays.
const longContext = 64

func readBatch(doc []byte, into *NewTaskBatch) error {
	from, to := member(doc, "tasks")
	if from == to || doc[from] != '[' {
		return readAll(doc, into)
	}
	err := readAll(slices.Concat(doc[:from], []byte("[]"), doc[to:]), into)
	w := asyncflow.JSONWalk{Doc: doc, At: from}
	w.Enter()
	// One task too many is enough to refuse the batch.
	for err == nil && len(into.Tasks) <= asyncflow.MaxBatch && w.Next() {
		one := w.Skip()
		if cap(into.Tasks) == 0 { // most tasks of a batch have about the same length
			into.Tasks = make([]BatchItem, 0,
				min(1+(to-from)/(len(one)+1), asyncflow.MaxBatch+1))
		}
		into.Tasks = append(into.Tasks, BatchItem{})
		err = into.Tasks[len(into.Tasks)-1].UnmarshalJSON(one)
	}
	return err
}

// readAll reads a valid document with package json and checks it.
func readAll(doc []byte, into any) error {
	err := json.Unmarshal(doc, into)
	w := walk{asyncflow.JSONWalk{Doc: doc}, err != nil, takesAnyText(into)}
	if found := w.value("", reflect.TypeOf(into).Elem()); found != nil {
		return found
	}
	return err
}

// takesAnyText reports whether a document may hold text of any bytes. A worker's report counts even
// if its text is garbled; the text is cleaned before it is stored.
func takesAnyText(into any) bool {
	switch into.(type) {
	case *Failure, *ProgressReport, *Snooze:
		return true
	}
	return false
}
