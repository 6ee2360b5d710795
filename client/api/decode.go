package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
)

// Decode reads a JSON document into a struct. It refuses what encoding/json lets
// pass: fields that the type doesn't know or that are spelled with other capitals, a
// field that is given twice or is null, text that isn't UTF-8 or has a NUL, and
// anything after the document. What is to be passed on unread (JSON) isn't looked
// into. The error names the field, as stages[1].timeout, where there is one.
func Decode(doc []byte, into any) error {
	err := json.Unmarshal(doc, into)
	if err != nil && !json.Valid(doc) {
		return invalid(doc, err)
	}
	w := walk{doc: doc, refused: err != nil, anyText: takesAnyText(into)}
	if found := w.value("", reflect.TypeOf(into).Elem()); found != nil {
		return found
	}
	return err
}

// invalid says why something is no JSON document.
func invalid(doc []byte, err error) error {
	if first := json.NewDecoder(bytes.NewReader(doc)).Decode(new(json.RawMessage)); first == nil {
		return errors.New("there is something after the JSON document")
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
