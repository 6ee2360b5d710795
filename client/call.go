package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

// call sends a request and reads its answer: a 2xx into T, anything else into an *Error. extra is
// added to the timeout: it is the time that the server was asked to wait.
func call[T any](
	ctx context.Context, c *Client, extra time.Duration,
	send func(context.Context) (*http.Response, error),
) (T, error) {
	var into T
	outer := ctx
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout+extra)
		defer cancel()
	}
	resp, err := send(ctx)
	if err != nil {
		return into, c.noAnswer(outer, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return into, c.noAnswer(outer, err)
	}
	readETag(ctx, resp)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return into, ErrorOf(resp, body)
	}
	if resp.StatusCode == http.StatusNoContent {
		return into, nil
	}
	if err := json.Unmarshal(body, &into); err != nil {
		return into, &ConnectionError{
			URL: c.url,
			Err: fmt.Errorf("its answer can't be read; is it an asyncflow server? %w", err),
		}
	}
	return into, nil
}

// callBare calls an operation without parameters.
func callBare[T any](
	ctx context.Context, c *Client,
	send func(context.Context, ...api.RequestEditorFn) (*http.Response, error),
) (T, error) {
	return call[T](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return send(ctx)
	})
}

// callOn calls an operation on one thing. Its id or name is part of the path.
func callOn[T any](
	ctx context.Context, c *Client, field, part string,
	send func(context.Context, string, ...api.RequestEditorFn) (*http.Response, error),
) (T, error) {
	if err := checkPart(field, part); err != nil {
		var zero T
		return zero, err
	}
	return call[T](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return send(ctx, part)
	})
}

// callWith calls an operation with a body.
func callWith[T any](
	ctx context.Context, c *Client, doc any,
	send func(context.Context, string, io.Reader, ...api.RequestEditorFn) (*http.Response, error),
) (T, error) {
	body, err := encode(doc)
	if err != nil {
		var zero T
		return zero, err
	}
	return call[T](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return send(ctx, contentJSON, bytes.NewReader(body))
	})
}

// callOnWith calls an operation on one thing with a body.
func callOnWith[T any](
	ctx context.Context, c *Client, field, part string, doc any,
	send func(
		context.Context, string, string, io.Reader, ...api.RequestEditorFn,
	) (*http.Response, error),
) (T, error) {
	if err := checkPart(field, part); err != nil {
		var zero T
		return zero, err
	}
	return callWith[T](ctx, c, doc, func(
		ctx context.Context, kind string, body io.Reader, _ ...api.RequestEditorFn,
	) (*http.Response, error) {
		return send(ctx, part, kind, body)
	})
}

// noAnswer is the answer of calls without one.
type noAnswer struct{}

// noAnswer returns the reason for a missing answer: the caller's own context, the connection, or
// this client's timeout.
func (c *Client) noAnswer(outer context.Context, err error) error {
	if outer.Err() != nil {
		return outer.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("nothing came in time (%w)", context.DeadlineExceeded)
	}
	return &ConnectionError{URL: c.url, Err: err}
}

// ErrorOf returns the error of an answer that isn't 2xx. It is for programs that read the server's
// answers with another HTTP client. If the answer isn't a problem document, such as a proxy's page,
// the error quotes its start.
func ErrorOf(r *http.Response, body []byte) *Error {
	e := &Error{Status: r.StatusCode, RetryAfter: retryAfter(r)}
	if strings.Contains(r.Header.Get("Content-Type"), "json") {
		_ = json.Unmarshal(body, &e.Problem) // missing fields are filled in below
	}
	if e.Problem.Code == "" {
		e.Problem.Code = string(codeOf(r.StatusCode))
	}
	if e.Problem.Title == "" {
		e.Problem.Title = http.StatusText(r.StatusCode)
	}
	if e.Problem.Detail == "" && len(e.Problem.Errors) == 0 {
		e.Problem.Detail = plainDetail(r, body)
	}
	e.Problem.Status = r.StatusCode
	e.Problem.RequestID = cmp.Or(e.Problem.RequestID, r.Header.Get("X-Request-Id"))
	return e
}

func plainDetail(r *http.Response, body []byte) string {
	const most = 200
	if to := r.Header.Get("Location"); to != "" && r.StatusCode/100 == 3 {
		return "redirects to " + to + ", which is not followed"
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		return ""
	}
	text := strings.ToValidUTF8(string(body[:min(len(body), most)]), "")
	return strings.Join(strings.Fields(text), " ")
}

// encode returns a body for a call.
func encode(doc any) ([]byte, error) {
	body, err := api.Encode(doc)
	if err != nil {
		return nil, asyncflow.InvalidField("body", "can't be written as JSON: %v", err)
	}
	return body, nil
}

// query sets the parameters of a request that aren't empty. The generated code would send the empty
// ones, too.
func query(params map[string]string) api.RequestEditorFn {
	return func(_ context.Context, r *http.Request) error {
		q := r.URL.Query()
		for name, value := range params {
			if value != "" {
				q.Set(name, value)
			}
		}
		r.URL.RawQuery = q.Encode()
		return nil
	}
}

// checkPart refuses a value that can't be a part of a path.
func checkPart(field, value string) error {
	switch value {
	case "":
		return asyncflow.InvalidField(field, "is required")
	case ".", "..":
		return asyncflow.InvalidField(field, "must not be %q", value)
	}
	return nil
}

// listed iterates over all pages of a list. An error ends it.
func listed[T, P any](
	ctx context.Context, c *Client, params map[string]string,
	send func(context.Context, *P, ...api.RequestEditorFn) (*http.Response, error),
) iter.Seq2[T, error] {
	type list struct {
		Data       []T    `json:"data"`
		NextCursor string `json:"next_cursor"`
	}
	return paged("", func(cursor string) ([]T, string, error) {
		all := maps.Clone(params)
		if all == nil {
			all = map[string]string{}
		}
		all["cursor"] = cursor
		page, err := call[list](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
			return send(ctx, nil, query(all))
		})
		return page.Data, page.NextCursor, err
	})
}

// paged iterates over all rows from a cursor on. An error ends it.
func paged[T any](
	cursor string, page func(cursor string) (rows []T, next string, err error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for next := cursor; ; {
			rows, after, err := page(next)
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			if after == "" {
				return
			}
			next = after
		}
	}
}

// gathered collects a whole list, or returns the error that ended it.
func gathered[T any](list iter.Seq2[T, error]) ([]T, error) {
	all := []T{}
	for row, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, nil
}
