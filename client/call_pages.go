package client

import (
	"context"
	"iter"
	"maps"
	"net/http"

	"github.com/asyncflow/asyncflow/client/api"
)

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
