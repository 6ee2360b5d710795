package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/ratelimit"
	"github.com/asyncflow/asyncflow/internal/linkpage"
	"github.com/asyncflow/asyncflow/store"
)

// People open these pages without a token of ours. A link that doesn't verify is answered alike,
// whatever is wrong with it, and before anything is read. The token in the path is the only
// credential, and no browser sends it by itself: so another site can't make somebody decide (CSRF)
// unless it knows the link, and then it needs nobody.

// Bounds of the links that a node answers. Each may read the largest context.
const (
	maxLinks          = 32 // at once
	maxLinksPerTenant = 8  // at once
	linksPerSecond    = 20 // of a tenant
)

// linkAnswer is a page with the status of its answer.
type linkAnswer struct {
	status int
	page   linkpage.Page
}

// showLink shows what a link decides. It changes nothing: mail scanners open links.
func (s *Server) showLink(c *fiber.Ctx) error {
	return s.answerLink(c, func(l callbacks.Link, of store.Link) (linkAnswer, error) {
		return linkAnswer{http.StatusOK, askPage(l, of)}, nil
	})
}

// decideLink decides.
func (s *Server) decideLink(c *fiber.Ctx) error {
	return s.answerLink(c, func(l callbacks.Link, of store.Link) (linkAnswer, error) {
		form, err := url.ParseQuery(string(bodyOf(c)))
		d := asyncflow.LinkDecision{Decision: l.Decision, By: strings.TrimSpace(form.Get("by")),
			At: s.cfg.Store.Clock.Now().UTC().Truncate(time.Second)}
		if err != nil {
			return linkAnswer{http.StatusBadRequest, faultPage(askPage(l, of), d.By, err)}, nil
		}
		if err = d.Validate(); err != nil {
			return linkAnswer{http.StatusBadRequest, faultPage(askPage(l, of), d.By, err)}, nil
		}
		return s.decide(c.UserContext(), l, of, d)
	})
}

// decide sends the signal of a decision. Of several for one round the first one counts. The task
// may take another signal, or go on, just before: then the decision doesn't count.
func (s *Server) decide(
	ctx context.Context, l callbacks.Link, of store.Link, d asyncflow.LinkDecision,
) (a linkAnswer, err error) {
	signal := of.Signal
	if signal.Data, err = json.Marshal(d); err != nil {
		return a, err
	}
	sent, err := s.cfg.Store.SendSignal(ctx, l.Tenant, signal)
	code := asyncflow.CodeOf(err)
	if err != nil && code != asyncflow.CodeKeyReused && code != asyncflow.CodeConflict {
		return a, err
	}
	first := err == nil && !sent.Existing
	of, err = s.cfg.Store.SentLink(ctx, l.Tenant, l.Task, l.Seq, l.Stage)
	switch {
	case err != nil:
		return a, err
	case of.Decided == nil:
		return tooLate, nil
	case first:
		return linkAnswer{http.StatusOK, linkpage.Page{Title: "Thank you", Decided: of.Decided,
			Message: "Your decision is recorded.", Task: l.Task.String()}}, nil
	}
	return linkAnswer{http.StatusConflict, decidedPage(l, of)}, nil
}

// answerLink answers with a page. It calls answer if the link verifies and a decision counts.
func (s *Server) answerLink(
	c *fiber.Ctx, answer func(callbacks.Link, store.Link) (linkAnswer, error),
) error {
	token := c.Params("token")
	l, ok := s.cfg.Keys.VerifyLink(token)
	switch {
	case token == callbacks.TestToken:
		return writeLink(c, testLink)
	case !ok:
		return writeLink(c, unknownLink)
	case !s.cfg.Store.Clock.Now().Before(l.Expiry):
		return writeLink(c, expiredLink)
	}
	a, err := s.openLink(c, l, answer)
	if err != nil {
		if a, err = s.refusedLink(c, err); err != nil {
			return err
		}
	}
	return writeLink(c, a)
}

// openLink finds out how a link stands, and calls answer if a decision counts.
func (s *Server) openLink(
	c *fiber.Ctx, l callbacks.Link, answer func(callbacks.Link, store.Link) (linkAnswer, error),
) (a linkAnswer, err error) {
	if err := s.limitLinks(l.Tenant); err != nil {
		return a, err
	}
	defer s.links.Give(l.Tenant, 1)
	ctx := c.UserContext()
	t, err := s.knownTenant(ctx, l.Tenant)
	if err != nil {
		return a, err
	}
	if err = t.Refusal(); err != nil {
		return a, err
	}
	of, err := s.linkOf(ctx, l)
	switch {
	case err != nil:
		return a, err
	case of.Decided != nil && isRead(c):
		return linkAnswer{http.StatusOK, decidedPage(l, of)}, nil
	case of.Decided != nil:
		return linkAnswer{http.StatusConflict, decidedPage(l, of)}, nil
	case !of.Open || !slices.Contains(of.Links.Names(), l.Decision):
		return tooLate, nil
	}
	return answer(l, of)
}

func (s *Server) linkOf(ctx context.Context, l callbacks.Link) (store.Link, error) {
	return s.cfg.Store.Link(ctx, l.Tenant, l.Task, l.Seq, l.Stage)
}

// limitLinks takes one of a tenant's slots for links, or refuses it.
func (s *Server) limitLinks(tenant string) error {
	if err := s.links.Take(tenant, 1); err != nil {
		return err
	}
	_, wait := s.linkRates.Take(tenant, linksPerSecond, 1, time.Now())
	if wait == 0 {
		return nil
	}
	s.links.Give(tenant, 1)
	return &asyncflow.Error{Code: asyncflow.CodeRateLimited, RetryAfter: wait,
		Message: fmt.Sprintf("a tenant has %d links per second on a node", linksPerSecond)}
}

// Pages that don't depend on the link.
var (
	unknownLink = linkAnswer{http.StatusNotFound, linkpage.Page{Title: "Unknown link",
		Message: "This link isn't known. If you have copied it, copy all of it."}}
	testLink = linkAnswer{http.StatusNotFound, linkpage.Page{Title: "A test",
		Message: "This link came with a test. It belongs to no task, and decides nothing."}}
	expiredLink = linkAnswer{http.StatusGone, linkpage.Page{Title: "Expired",
		Message: "This link has expired. Nothing can be decided with it any more."}}
	tooLate = linkAnswer{http.StatusGone, linkpage.Page{Title: "Too late",
		Message: "The task has gone on or is over. Nothing can be decided with this link."}}
	refusedNow = linkpage.Page{Title: "Not possible now",
		Message: "Nothing can be decided at the moment. Nothing was changed. Try it again later."}
	unknownNow = linkpage.Page{Title: "Try again",
		Message: "It isn't known whether your decision was recorded. Open the link again."}
)

// refusedLink returns the page for an error, or the error if there is none for it.
func (s *Server) refusedLink(c *fiber.Ctx, err error) (linkAnswer, error) {
	e := knownError(err)
	status := statusOf[e.Code]
	switch {
	case e.Code == asyncflow.CodeNotFound, e.Code == asyncflow.CodeTaskOver,
		e.Code == asyncflow.CodeForbidden: // the tenant is gone
		return tooLate, nil
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(ratelimit.WholeSeconds(e.RetryAfter)))
	case status != http.StatusForbidden:
		return linkAnswer{}, err
	}
	if status == http.StatusServiceUnavailable && !errors.Is(err, errDraining) {
		s.logFailure(c, status, err)
		if !isRead(c) {
			return linkAnswer{status, unknownNow}, nil
		}
	}
	return linkAnswer{status, refusedNow}, nil
}

func askPage(l callbacks.Link, of store.Link) linkpage.Page {
	return linkpage.Page{
		Title:    "Decide: " + l.Decision,
		Message:  "Nothing is decided yet. The button decides.",
		Task:     l.Task.String(),
		Summary:  of.Links.SummaryOf(of.Context),
		Decision: l.Decision,
		Until:    of.Until,
	}
}

// faultPage returns a page that says what is wrong with the name.
func faultPage(p linkpage.Page, by string, err error) linkpage.Page {
	p.By, p.Fault = shorten(strings.ToValidUTF8(by, ""), asyncflow.MaxDecidedBy), "can't be read"
	if e := knownError(err); len(e.Fields) > 0 {
		p.Fault = e.Fields[0].Message
	}
	return p
}

func decidedPage(l callbacks.Link, of store.Link) linkpage.Page {
	return linkpage.Page{Title: "Already decided", Message: "This link changes nothing any more.",
		Task: l.Task.String(), Decided: of.Decided}
}

func writeLink(c *fiber.Ctx, a linkAnswer) error {
	body, err := linkpage.Render(a.page)
	if err != nil {
		return err
	}
	for name, value := range linkpage.Headers {
		c.Set(name, value)
	}
	c.Status(a.status).Response().Header.SetContentType(fiber.MIMETextHTMLCharsetUTF8)
	c.Response().SetBodyRaw(body)
	return nil
}
