package asyncflow

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// StoredResults are the results of a fan-out that are too long for the context of the next stage.
// It carries a URL instead of them.
type StoredResults struct {
	Task   TaskID // the parent
	FanOut int    // the seq of the fan-out
}

const (
	resultsPath  = "/v1/tasks/"
	resultsQuery = "/results?fan_out="
)

// URL returns where the results can be read, at the public URL of the API.
func (r StoredResults) URL(public string) string {
	return public + resultsPath + r.Task.String() + resultsQuery + strconv.Itoa(r.FanOut)
}

// maxFanOut is the most that the seq of a fan-out can be.
const maxFanOut = math.MaxInt16

// parseResultsURL reads what URL returns, whatever the public URL. Nothing else is one.
func parseResultsURL(text string) (r StoredResults, ok bool) {
	_, rest, _ := cutLast(text, resultsPath)
	id, seq, ok := strings.Cut(rest, resultsQuery)
	if !ok {
		return r, false
	}
	var err1, err2 error
	r.Task, err1 = ParseTaskID(id)
	r.FanOut, err2 = strconv.Atoi(seq)
	ok = err1 == nil && err2 == nil && r.FanOut > 0 && r.FanOut <= maxFanOut
	return r, ok && seq == strconv.Itoa(r.FanOut) // no leading zeros or signs
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// stored returns the results that a document names by their URL only, where the pointer leads to
// them, and their number; 0: there are none.
func (p Pointer) stored(doc json.RawMessage) (r StoredResults, count int) {
	parent, found := strings.CutSuffix(string(p), "/results")
	if !found {
		return r, 0
	}
	part, err := PointTo(doc, parent)
	if err != nil {
		return r, 0
	}
	var joined struct {
		Count      int    `json:"count"`
		ResultsURL string `json:"results_url"`
	}
	err = json.Unmarshal(part, &joined)
	if err != nil || joined.Count < 1 || joined.Count > MaxChildren {
		return r, 0
	}
	if r, found = parseResultsURL(joined.ResultsURL); !found {
		return r, 0
	}
	return r, joined.Count
}

// CheckOwner returns an error if the items are results of another task: a task fans out over its
// own only.
func (s Spread) CheckOwner(task TaskID) error {
	if s.Stored == (StoredResults{}) || s.Stored.Task == task {
		return nil
	}
	return fmt.Errorf("fan_out.items: the results of task %s have more than %d bytes, and are not "+
		"in the context: only a later stage of that task can fan out over them", s.Stored.Task,
		MaxInlineResults)
}
