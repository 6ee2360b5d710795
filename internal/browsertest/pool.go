package browsertest

import (
	"context"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// pool keeps the pages that no test uses at the moment.
type pool struct {
	mu   sync.Mutex
	free []context.Context
}

var pages pool

// take returns a free page, or else a new one.
func (p *pool) take(browser context.Context) (context.Context, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		page, _ := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
		// The page ends with the context of its first use, which is thus not one of a test.
		return page, chromedp.Do(page)
	}
	page := p.free[last]
	p.free = p.free[:last]
	return page, nil
}

func (p *pool) put(page context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, page)
}

// blank undoes what a test did to a page: it leaves the page's document, and forgets cookies,
// history, what is blocked, and the size and colours of the screen. A new page listens to the
// network; without that, a test could block nothing.
func blank(page context.Context) error {
	if err := chromedp.Do(page, chromedp.Navigate("about:blank")); err != nil {
		return err
	}
	for _, undo := range []cdp.Command[cdp.Empty, cdp.Empty]{
		network.ClearBrowserCookies, network.Disable, cdppage.ResetNavigationHistory,
		emulation.ClearDeviceMetricsOverride,
	} {
		if _, err := chromedp.Call(page, undo, cdp.Empty{}); err != nil {
			return err
		}
	}
	if _, err := chromedp.Call(page, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	_, err := chromedp.Call(page, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	return err
}
