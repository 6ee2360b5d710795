package workercheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// maxReport bounds a report in bytes.
const maxReport = asyncflow.DefaultMaxContext + 16<<10

// The kinds of reports.
const (
	verbComplete  = "complete"
	verbFail      = "fail"
	verbHeartbeat = "heartbeat"
	verbProgress  = "progress"
)

// report is a call of the worker, and its answer.
type report struct {
	verb    string
	output  json.RawMessage // of complete
	error   string          // of fail
	problem string          // why the report was refused
	status  int             // of the answer; 0: undecided, the report is valid
	task    asyncflow.Status
}

// read reads the body of a report. Its error tells the worker what is wrong with it.
func (one *report) read(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReport))
	if err != nil {
		return err
	}
	var into any
	switch one.verb {
	case verbComplete:
		into = &api.Completion{}
	case verbFail:
		into = &api.Failure{}
	case verbProgress:
		into = &api.Progress{}
	case verbHeartbeat:
		return nil
	default:
		return fmt.Errorf("%q is none of complete, fail, heartbeat and progress", one.verb)
	}
	if len(body) == 0 && one.verb == verbComplete {
		return nil
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return errors.New("its Content-Type must be application/json")
	}
	strict := json.NewDecoder(bytes.NewReader(body))
	strict.DisallowUnknownFields()
	if err := strict.Decode(into); err != nil {
		return fmt.Errorf("its body can't be read: %w", err)
	}
	switch doc := into.(type) {
	case *api.Completion:
		one.output = json.RawMessage(doc.Output)
		if len(one.output) > 0 {
			return asyncflow.CheckDocument("output", one.output, asyncflow.DefaultMaxContext)
		}
	case *api.Failure:
		if one.error = doc.Error; one.error == "" {
			return errors.New("error is required")
		}
	}
	return nil
}
