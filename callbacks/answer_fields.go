package callbacks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// readObject reads a JSON object. target returns where the value of a field goes; nil: the field is
// unknown. What package json would pass over is an error, as the worker meant to say something: a
// name in other case or given twice, a null that isn't an output, and text after the object.
func readObject(doc []byte, target func(name string) any) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	switch first, err := d.Token(); {
	case err != nil:
		return cutOff(err)
	case first == nil:
		return errors.New("it can't be null")
	case first != json.Delim('{'):
		return json.Unmarshal(doc, &struct{}{}) // names the kind, or is the error of its syntax
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return cutOff(err)
		}
		name, _ := token.(string)
		into := target(name)
		switch {
		case into == nil:
			return fmt.Errorf("unknown field %q", name)
		case seen[name]:
			return fmt.Errorf("%s is given twice", name)
		}
		seen[name] = true
		if err := readField(d, name, into); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return cutOff(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errAfter
	}
	return nil
}

// readField reads the value of a field.
func readField(d *json.Decoder, name string, into any) error {
	if output, ok := into.(*json.RawMessage); ok {
		return cutOff(d.Decode(output))
	}
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return cutOff(err)
	}
	if string(raw) == "null" {
		return fmt.Errorf("%s must not be null", name)
	}
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		wrong.Field = name
	}
	return err
}

// cutOff names the end of a document that is cut off.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
