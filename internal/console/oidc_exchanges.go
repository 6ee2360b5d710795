package console

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
)

const (
	// maxExchanges bounds the logins that a node ends at the same time.
	maxExchanges = 16
	// maxExchangesEach bounds the exchanges of one address, with the waiting ones.
	maxExchangesEach = 2
	// maxUsedLogins bounds the logins that a node remembers as used.
	maxUsedLogins = 4096
	// exchangePause is when a login may be tried again that was over a bound.
	exchangePause = 2 * time.Second
)

// errUnknownLogin refuses an answer of the issuer that belongs to no login, or to a used one.
var errUnknownLogin = asyncflow.Errorf(asyncflow.CodeInvalid, "this login was not begun in this "+
	"browser, was used already, or took longer than %d minutes", int(loginTime.Minutes()))

// exchanges are the logins that end on a node. A login ends once: its cookie could be sent any
// number of times, and a stranger with one cookie would keep everybody else out.
type exchanges struct {
	now   func() time.Time
	wait  time.Duration // how long a login waits for a slot
	slots chan struct{} // an element for each login with a slot

	mu   sync.Mutex
	used []usedLogin        // in use or used, the oldest first
	from map[netip.Addr]int // how many wait or hold a slot, by address
}

type usedLogin struct {
	state string
	until time.Time // when its cookie expires
}

func newExchanges(now func() time.Time, wait time.Duration) *exchanges {
	return &exchanges{now: now, wait: wait, slots: make(chan struct{}, maxExchanges),
		from: map[netip.Addr]int{}}
}

// begin waits for a slot for a login that comes back from an address. end gives the slot back. The
// error is errUnknownLogin if the login was used, or CodeRateLimited over a bound; then the login
// may be tried again.
func (e *exchanges) begin(
	ctx context.Context, l pendingLogin, from netip.Addr,
) (end func(), err error) {
	if err := e.enter(l, from); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.wait)
	defer cancel()
	select {
	case e.slots <- struct{}{}:
		return func() { <-e.slots; e.leave(from) }, nil
	case <-ctx.Done():
		e.forget(l)
		e.leave(from)
		return nil, tooManyExchanges("this node", maxExchanges)
	}
}

// enter marks a login as used and counts it for an address.
func (e *exchanges) enter(l pendingLogin, from netip.Addr) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	e.used = slices.DeleteFunc(e.used, func(u usedLogin) bool { return !now.Before(u.until) })
	if slices.ContainsFunc(e.used, func(u usedLogin) bool { return u.state == l.State }) {
		return errUnknownLogin
	}
	if e.from[from] >= maxExchangesEach {
		return tooManyExchanges("your address", maxExchangesEach)
	}
	if len(e.used) >= maxUsedLogins {
		e.used = slices.Delete(e.used, 0, 1)
	}
	e.used = append(e.used, usedLogin{l.State, l.Until})
	e.from[from]++
	return nil
}

// forget makes a login unused that got no slot.
func (e *exchanges) forget(l pendingLogin) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used = slices.DeleteFunc(e.used, func(u usedLogin) bool { return u.state == l.State })
}

func (e *exchanges) leave(from netip.Addr) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.from[from]--; e.from[from] == 0 {
		delete(e.from, from)
	}
}

// tooManyExchanges refuses a login over a limit.
func tooManyExchanges(of string, limit int) error {
	return &asyncflow.Error{Code: asyncflow.CodeRateLimited, RetryAfter: exchangePause,
		Message: fmt.Sprintf("the limit of %s is %d logins that end at the same time; reload this "+
			"page in some seconds", of, limit)}
}
