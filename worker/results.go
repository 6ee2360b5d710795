package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Joined is the context of the stage after a fan-out. Read its results by Outputs or Settled.
type Joined struct {
	Count     int `json:"count"` // of all children
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`

	Results    []json.RawMessage `json:"results,omitempty"`
	ResultsURL string            `json:"results_url,omitempty"` // instead of results over 1 MiB
}

// Outputs yields the outputs of all children, in the order of the items or shards: the zero value
// for a child without one. It reads long results a page at a time, as the loop goes on. After an
// error, which wraps ErrLost if the attempt is over, it yields nothing more. It is for a fan-out
// with outputs as results, the default.
func Outputs[Out any](ctx context.Context, task Task[Joined]) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		for doc, err := range resultsOf(ctx, task, outputsOf) {
			var out Out
			if err == nil && doc != nil {
				err = json.Unmarshal(doc, &out)
			}
			if !yield(out, err) || err != nil {
				return
			}
		}
	}
}

// Settled is Outputs for a fan-out with "settled" results: it yields how each child ended.
func Settled(ctx context.Context, task Task[Joined]) iter.Seq2[client.ChildResult, error] {
	return func(yield func(client.ChildResult, error) bool) {
		for doc, err := range resultsOf(ctx, task, wholeResults) {
			var result client.ChildResult
			if err != nil {
				yield(result, err)
				return
			}
			err = json.Unmarshal(doc, &result)
			if !yield(result, err) || err != nil {
				return
			}
		}
	}
}

// resultPage is a page of results; it leaves them as they are.
type resultPage struct {
	Results []json.RawMessage `json:"results"`
	Next    int               `json:"next"`
}

func wholeResults(all []json.RawMessage) ([]json.RawMessage, error) { return all, nil }

// outputsOf returns the outputs of results; nil for one without.
func outputsOf(all []json.RawMessage) ([]json.RawMessage, error) {
	outputs := make([]json.RawMessage, len(all))
	for i, doc := range all {
		var result client.ChildResult
		if err := json.Unmarshal(doc, &result); err != nil {
			return nil, err
		}
		outputs[i] = json.RawMessage(result.Output)
	}
	return outputs, nil
}

// resultsOf yields the results as a context holds them; read makes these of a page's.
func resultsOf(
	ctx context.Context, t Task[Joined], read func([]json.RawMessage) ([]json.RawMessage, error),
) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		page := resultPage{Results: t.Context.Results}
		var err error
		for from := 0; ; from = page.Next {
			if t.Context.ResultsURL != "" {
				page, err = readResults(ctx, t, from)
			}
			if err == nil && t.Context.ResultsURL != "" {
				page.Results, err = read(page.Results)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, doc := range page.Results {
				if !yield(doc, nil) {
					return
				}
			}
			if page.Next == 0 {
				return
			}
		}
	}
}

// readResults reads a page of results, trying again like reports.
func readResults(ctx context.Context, t Task[Joined], from int) (page resultPage, err error) {
	address, err := resultsAddress(t.Callback, t.Context.ResultsURL, from)
	if err != nil {
		return page, err
	}
	answer, err := read(ctx, t.run, t.Callback, address)
	if err != nil {
		return page, fmt.Errorf("results: %w", err)
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return page, fmt.Errorf("results: the answer can't be read: %w", err)
	}
	if page.Next > 0 && page.Next <= from {
		return page, fmt.Errorf("results: the page from %d goes on with %d", from, page.Next)
	}
	return page, nil
}

// read reads a document of asyncflow with the token of a delivery, trying again like reports.
func read(ctx context.Context, r *run, cb Callback, address string) ([]byte, error) {
	reporter := NewReporter(nil)
	if r != nil {
		reporter = r.worker.reporter
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+cb.Token)
	resp, err := reporter.retried.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode/100 != 2:
		return nil, refusal(resp, answer)
	case err != nil:
		return nil, fmt.Errorf("the answer can't be read: %w", err)
	}
	return answer, nil
}

// resultsAddress returns the address of a page of results. It is where reports go: a context is
// what somebody submitted, and the token is for asyncflow only.
func resultsAddress(cb Callback, stored string, from int) (string, error) {
	u, err := url.Parse(stored)
	if err != nil {
		return "", fmt.Errorf("results_url: %w", err)
	}
	base, _, ours := strings.Cut(cb.URL, "/v1/callbacks/")
	_, rest, named := strings.Cut(u.EscapedPath(), "/v1/tasks/")
	id, whole := strings.CutSuffix(rest, "/results")
	if _, err := asyncflow.ParseTaskID(id); err != nil || !ours || !named || !whole {
		return "", fmt.Errorf("results_url: %q is no address of results", stored)
	}
	query := u.Query()
	query.Set("from", strconv.Itoa(from))
	return base + "/v1/tasks/" + id + "/results?" + query.Encode(), nil
}
