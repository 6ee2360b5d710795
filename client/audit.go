package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow/client/api"
)

// The outcomes of an audited call; see AuditEntry.
const (
	AuditDone    = api.AuditDone
	AuditRefused = api.AuditRefused
	AuditDenied  = api.AuditDenied
	AuditFailed  = api.AuditFailed
)

// AuditParams select audit entries; zero fields are left out.
type AuditParams struct {
	Operator     bool // entries without a tenant; they need an admin token
	Since, Until time.Time
	Action       string // such as task_type.put
	Subject      string
	Outcome      AuditOutcome
	Limit        int // entries of a page: 1 to 500; default 50
	Cursor       string
}

// Audit returns a page of audited calls, newest first. AuditList.NextCursor is the cursor of the
// next page, and empty on the last page.
func (c *Client) Audit(ctx context.Context, p AuditParams) (AuditList, error) {
	params := map[string]string{
		"since":   timeParam(p.Since),
		"until":   timeParam(p.Until),
		"action":  p.Action,
		"subject": p.Subject,
		"outcome": string(p.Outcome),
		"cursor":  p.Cursor,
	}
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

// AllAudit iterates over all entries that Audit would return, page by page. An error ends it.
func (c *Client) AllAudit(ctx context.Context, p AuditParams) iter.Seq2[AuditEntry, error] {
	return paged(p.Cursor, func(cursor string) ([]AuditEntry, string, error) {
		p.Cursor = cursor
		page, err := c.Audit(ctx, p)
		return page.Data, page.NextCursor, err
	})
}
