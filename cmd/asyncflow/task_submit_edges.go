package main

import (
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// dependencies reads the values of --depends-on.
func dependencies(values []string) (all []client.Dependency, err error) {
	for _, v := range values {
		d, err := dependency(v)
		if err != nil {
			return nil, asyncflow.InvalidField("--depends-on", "is %q: %v", v, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// dependency reads an id or TYPE:KEY, with ,on_failure= and ,wait_for= behind it. A key may have
// commas of its own.
func dependency(text string) (d client.Dependency, err error) {
	for {
		i := strings.LastIndexByte(text, ',')
		if i < 0 {
			break
		}
		name, value, _ := strings.Cut(text[i+1:], "=")
		switch name {
		case "on_failure":
			d.OnFailure = asyncflow.OnFailure(value)
		case "wait_for":
			wait, err := time.ParseDuration(value)
			if err != nil {
				return d, asyncflow.InvalidField("wait_for", "must be a time such as 24h")
			}
			d.WaitFor = asyncflow.NewDuration(wait)
		default:
			return d, setTarget(&d, text)
		}
		text = text[:i]
	}
	return d, setTarget(&d, text)
}

// setTarget sets the task that is depended on. Types have no colon in their names.
func setTarget(d *client.Dependency, text string) (err error) {
	var byKey bool
	if d.Type, d.Key, byKey = strings.Cut(text, ":"); byKey {
		if d.Type == "" || d.Key == "" {
			return asyncflow.Errorf(asyncflow.CodeInvalid, "name both, as in TYPE:KEY")
		}
		return nil
	}
	d.Type = ""
	if d.Task, err = asyncflow.ParseTaskID(text); err != nil {
		return asyncflow.Errorf(asyncflow.CodeInvalid,
			"it must be an id such as thumbnails.1.42, or TYPE:KEY")
	}
	return nil
}
