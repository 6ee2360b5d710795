package claims

import (
	"strings"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
)

// A claimer may be excluded from the tasks at the head of a line. So it goes through the line in
// pages, and the node remembers where: the next transaction for it goes on from there. At the end
// of the line it begins again with the head.

// place is a place in a line; its zero value is the head.
type place struct {
	order time.Time
	id    int64
}

func (p place) isZero() bool { return p.id == 0 }

func (p place) before(other place) bool {
	if p.order.Equal(other.order) {
		return p.id < other.id
	}
	return p.order.Before(other.order)
}

const (
	// passAge is how long a claimer that gets tasks goes on at its place; then it begins with
	// the head, where there may be tasks for it again.
	passAge = 30 * time.Second
	// restOfATask and mostRest bound how often a claimer goes through a line in vain: a task takes
	// some 10 µs to look at.
	restOfATask = 100 * time.Microsecond
	mostRest    = time.Minute
	// mostPasses is how many claimers of a line a node remembers.
	mostPasses = 1000
)

// pass is how far a claimer has come in a line.
type pass struct {
	after place
	began time.Time
	rows  int  // that it has looked at
	found bool // it got a task since it began
}

// passes say how far each claimer has come in a line with rules.
type passes struct {
	mu  sync.Mutex
	all map[string]*pass
}

// lines are the lines in which this node has seen tasks with rules.
type lines struct {
	mu  sync.Mutex
	all map[catalog.TimesKey]*passes
}

func (l *lines) find(key catalog.TimesKey) *passes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[key]
}

// note notes whether a line has tasks with rules.
func (l *lines) note(key catalog.TimesKey, ruled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !ruled:
		delete(l.all, key)
	case l.all[key] == nil:
		if l.all == nil {
			l.all = map[catalog.TimesKey]*passes{}
		}
		l.all[key] = &passes{all: map[string]*pass{}}
	}
}

// passKey has all that decides which tasks a claimer may have.
func (a *ClaimAsk) passKey() string {
	return strings.Join([]string{a.Claimer, a.Subject, a.labelsText()}, "\n")
}

// begin returns where a claimer goes on.
func (p *passes) begin(a *ClaimAsk, now time.Time) place {
	if p == nil {
		return place{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.all[a.passKey()]
	if one == nil {
		return place{}
	}
	if one.found && now.Sub(one.began) > passAge {
		delete(p.all, a.passKey())
		return place{}
	}
	return one.after
}

// end notes how far a claimer has come with its plan, and tells it when to look again.
func (p *passes) end(one *plan, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := one.ask
	key := a.passKey()
	known := p.all[key]
	if known == nil {
		p.forgetOne()
		known = &pass{began: now}
		p.all[key] = known
	}
	switch {
	case len(a.Leases) > 0:
		known.found = true
	case len(one.tasks) > 0: // somebody else was faster: it looks at the page again
	case !one.last.isZero():
		known.after = one.last
		known.rows += one.looked
		a.Further = true
	case known.found: // there may be tasks before the place where it began
		delete(p.all, key)
		a.Further = !one.after.isZero()
	default:
		a.Rest = now.Add(min(mostRest, time.Duration(known.rows+one.looked)*restOfATask))
		delete(p.all, key)
	}
}

// forgetOne keeps the number of claimers bounded: one of them begins with the head again.
func (p *passes) forgetOne() {
	for key := range p.all {
		if len(p.all) < mostPasses {
			return
		}
		delete(p.all, key)
	}
}
