package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
)

// What came of a call; see AuditEntry.
const (
	AuditDone    = api.AuditDone
	AuditRefused = api.AuditRefused
	AuditDenied  = api.AuditDenied
	AuditFailed  = api.AuditFailed
)

// AuditParams say which entries of the audit to list; what is zero is left out.
type AuditParams struct {
	Operator     bool // those that belong to no tenant, which needs an admin token
	Since, Until time.Time
	Action       string // such as task_type.put
	Subject      string
	Outcome      AuditOutcome
	Limit        int // of a page: 1 to 500; 50 unless told
	Cursor       string
}

// Audit returns a page of who did what, newest first. AuditList.NextCursor is the cursor
// of the next page, empty on the last.
func (c *Client) Audit(ctx context.Context, p AuditParams) (AuditList, error) {
	params := map[string]string{"since": timeParam(p.Since), "until": timeParam(p.Until),
		"action": p.Action, "subject": p.Subject,
		"outcome": string(p.Outcome), "cursor": p.Cursor}
	if p.Limit != 0 {
		params["limit"] = strconv.Itoa(p.Limit)
	}
	return call[AuditList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		if p.Operator {
			return c.api.ListOperatorAudit(ctx, nil, query(params))
		}
		return c.api.ListAudit(ctx, nil, query(params))
	})
}

// AllAudit goes through all entries that Audit would return, page by page. An error ends
// it.
func (c *Client) AllAudit(ctx context.Context, p AuditParams) iter.Seq2[AuditEntry, error] {
	return func(yield func(AuditEntry, error) bool) {
		for {
			page, err := c.Audit(ctx, p)
			if err != nil {
				yield(AuditEntry{}, err)
				return
			}
			for _, e := range page.Data {
				if !yield(e, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			p.Cursor = page.NextCursor
		}
	}
}
