package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Input returns the context as the task was submitted with it, whatever its stages made of it
// since. Its stage asks for it: deliver: {input: true}. One that was too long for the delivery is
// read from asyncflow, trying again like reports.
func Input[T, In any](t Task[In]) (input T, err error) {
	doc := t.Input
	if slices.Contains(t.linked, "input") {
		doc, err = t.readLinked("/input")
	} else if doc == nil {
		err = fmt.Errorf("the stage %s doesn't ask for it: deliver.input of its type", t.Stage)
	}
	if err != nil {
		return input, fmt.Errorf("the input: %w", err)
	}
	if err = json.Unmarshal(doc, &input); err != nil {
		return input, fmt.Errorf("the input: %w", err)
	}
	return input, nil
}

// Output returns the latest output of a stage that the task was in. The stage of the delivery asks
// for it: deliver: {outputs: […]}. An output that there isn't is null: the zero value, or nil if T
// is a pointer. It is read like Input.
func Output[T, In any](t Task[In], stage string) (output T, err error) {
	doc, known := t.Outputs[stage]
	switch {
	case slices.Contains(t.linked, outputPrefix+stage):
		doc, err = t.readLinked("/outputs/" + stage)
	case !known:
		err = fmt.Errorf("the stage %s doesn't ask for it: deliver.outputs of its type", t.Stage)
	}
	if err != nil {
		return output, fmt.Errorf("the output of %s: %w", stage, err)
	}
	if err = json.Unmarshal(doc, &output); err != nil {
		return output, fmt.Errorf("the output of %s: %w", stage, err)
	}
	return output, nil
}

// outputPrefix comes before the name of a stage in by_url.
const outputPrefix = "outputs."

// readLinked reads a document that was too long for the delivery, from where reports go.
func (t Task[In]) readLinked(path string) ([]byte, error) {
	ctx := context.Background()
	if t.run != nil {
		ctx = t.run.ctx
	}
	return read(ctx, t.run, t.Callback, strings.TrimSuffix(t.Callback.URL, "/")+path)
}

// dropLinks drops what stands in place of documents that were too long.
func (t *Task[In]) dropLinks() {
	if len(t.linked) == 0 {
		return
	}
	t.Outputs = maps.Clone(t.Outputs)
	for _, name := range t.linked {
		if stage, output := strings.CutPrefix(name, outputPrefix); output {
			delete(t.Outputs, stage)
		} else {
			t.Input = nil
		}
	}
}
