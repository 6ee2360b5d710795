package client

import (
	"context"
	"iter"
	"maps"
	"net/http"

	"github.com/asyncflow/asyncflow/client/api"
)

// listed iterates over all pages of a list. An error ends it.
func listed[P, T any](
	ctx context.Context,
	c *Client,
	params map[string]string,
	get func(context.Context, api.RequestEditorFn) (*http.Response, error),
	read func(P) ([]T, string),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		params := maps.Clone(params)
		if params == nil {
			params = map[string]string{}
		}
		for {
			page, err := call[P](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
				return get(ctx, query(params))
			})
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			rows, next := read(page)
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			params["cursor"] = next
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
