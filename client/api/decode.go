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

// Decode reads a JSON document into a struct. It refuses what encoding/json lets
// pass: fields that the type doesn't know or that are spelled with other capitals, a
// field that is given twice or is null, text that isn't UTF-8 or has a NUL, and
// anything after the document. What is to be passed on unread (JSON) isn't looked
// into. The error names the field, as stages[1].timeout, where there is one. Nothing of
// doc is kept: it may be overwritten afterwards.
func Decode(doc []byte, into any) error {
	if !valid(doc) {
		if err := invalid(doc); err != nil {
			return err
		}
	}
	return read(doc, into)
}

// valid is json.Valid, which takes four times as long.
func valid(doc []byte) bool {
	return jsontext.Value(doc).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// invalid says why something is no JSON document.
func invalid(doc []byte) error {
	if first := json.NewDecoder(bytes.NewReader(doc)).Decode(new(json.RawMessage)); first == nil {
		return errors.New("there is something after the JSON document")
	}
	return json.Unmarshal(doc, new(json.RawMessage))
}

// read is Decode for a valid document. Package json goes over a text two or three times for
// each level that it stands in: it is spared what is long and not looked into.
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

// readPlainTask reads a task that has nothing but a context and plain texts, as most have. It
// isn't ok if there is anything else, or anything wrong.
func readPlainTask(doc []byte) (task NewTask, ok bool) {
	w := walk{doc: doc}
	if w.space(); doc[w.at] != '{' {
		return NewTask{}, false
	}
	for w.next('}') {
		name, value := w.member()
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

// isPlain tells whether a JSON value is a string that is not empty and is written as it
// reads.
func isPlain(value []byte) bool {
	return len(value) > 2 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value)
}

// longContext is the least length of a context that is worth while to be cut out.
const longContext = 64

func readBatch(doc []byte, into *NewTaskBatch) error {
	from, to := member(doc, "tasks")
	if from == to || doc[from] != '[' {
		return readAll(doc, into)
	}
	err := readAll(slices.Concat(doc[:from], []byte("[]"), doc[to:]), into)
	w := walk{doc: doc, at: from}
	for err == nil && len(into.Tasks) <= asyncflow.MaxBatch && w.next(']') { // one too many is enough to refuse it
		start := w.at
		w.skip()
		if cap(into.Tasks) == 0 { // tasks are mostly of one length
			into.Tasks = make([]BatchItem, 0, min(1+(to-start)/(w.at-start+1), asyncflow.MaxBatch+1))
		}
		into.Tasks = append(into.Tasks, BatchItem{})
		err = into.Tasks[len(into.Tasks)-1].UnmarshalJSON(doc[start:w.at])
	}
	return err
}

// readAll reads a valid document as it is.
func readAll(doc []byte, into any) error {
	err := json.Unmarshal(doc, into)
	w := walk{doc: doc, refused: err != nil, anyText: takesAnyText(into)}
	if found := w.value("", reflect.TypeOf(into).Elem()); found != nil {
		return found
	}
	return err
}

// takesAnyText tells whether a document may hold text of any bytes: what a worker says
// of its work counts, however garbled, and is cleaned before it is stored.
func takesAnyText(into any) bool {
	switch into.(type) {
	case *Failure, *Progress:
		return true
	}
	return false
}
