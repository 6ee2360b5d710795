package news

import (
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// Topics says of what a Listener keeps news.
type Topics struct {
	Tasks     bool // ready tasks, see Wakeups
	Config    bool // changes of the configuration
	FollowUps bool // what transactions have left to do, see FollowUp
}

// News are what has come since a Listener was last read. Entries are merged, so there is at most
// one of each type and of each tenant.
type News struct {
	// Ready has the types with announced tasks.
	Ready map[config.TypeKey]Announced
	// Lost says that announcements may be lost: any type may have a ready task.
	Lost bool
	// Changed has the tenants with another configuration.
	Changed map[string]bool
	// FollowUps has the tenants for which there is something to do, and how long that may wait for
	// more.
	FollowUps map[string]time.Duration
}

// Announced are the announced tasks of a type.
type Announced struct {
	Tasks int       // announcements
	Due   time.Time // the earliest time that had come when it was announced; zero: none had
	Later time.Time // the earliest time that was still to come; zero: none was
}

// Listener keeps the news of this node until its owner reads them. What is announced before a call
// returns is there when the next Read begins.
type Listener struct {
	topics  Topics
	changed chan struct{}

	mu   sync.Mutex
	news News
}

// Changed has an entry when there are news that were not taken.
func (l *Listener) Changed() <-chan struct{} { return l.changed }

// Read returns the news since the last call.
func (l *Listener) Read() News {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.news
	l.news = News{}
	return news
}

// add changes the news, and says that there are some.
func (l *Listener) add(change func(*News)) {
	l.mu.Lock()
	change(&l.news)
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default: // the last entry was not taken yet
	}
}

func (n *News) addReady(key config.TypeKey, at, now time.Time) {
	if n.Ready == nil {
		n.Ready = map[config.TypeKey]Announced{}
	}
	a := n.Ready[key]
	a.Tasks++
	if at.After(now) {
		a.Later = earlier(a.Later, at)
	} else {
		a.Due = earlier(a.Due, at)
	}
	n.Ready[key] = a
}

// earlier returns the earlier of two times; known is zero if there is none yet.
func earlier(known, at time.Time) time.Time {
	if known.IsZero() || at.Before(known) {
		return at
	}
	return known
}

func (n *News) addChanged(tenant string) {
	if n.Changed == nil {
		n.Changed = map[string]bool{}
	}
	n.Changed[tenant] = true
}

func (n *News) addFollowUp(tenant string, linger time.Duration) {
	if n.FollowUps == nil {
		n.FollowUps = map[string]time.Duration{}
	}
	if known, ok := n.FollowUps[tenant]; !ok || linger < known {
		n.FollowUps[tenant] = linger
	}
}

// Listeners are the listeners of a node. The zero value has none.
type Listeners struct {
	mu  sync.RWMutex
	all []*Listener
}

// Listen returns a listener, which keeps news from now on.
func (l *Listeners) Listen(topics Topics) *Listener {
	one := &Listener{topics: topics, changed: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
	return one
}

// TellReady says that a task of a type is ready, and when it is due.
func (l *Listeners) TellReady(key config.TypeKey, at, now time.Time) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, one := range l.all {
		if one.topics.Tasks {
			one.add(func(n *News) { n.addReady(key, at, now) })
		}
	}
}

// TellLost says that announcements may be lost.
func (l *Listeners) TellLost() {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, one := range l.all {
		if one.topics.Tasks {
			one.add(func(n *News) { n.Lost = true })
		}
	}
}

// TellChanged says that the configuration of a tenant is another one.
func (l *Listeners) TellChanged(tenant string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, one := range l.all {
		if one.topics.Config {
			one.add(func(n *News) { n.addChanged(tenant) })
		}
	}
}

// TellFollowUp says that FollowUp has something to do for a tenant, and how long that may wait.
func (l *Listeners) TellFollowUp(tenant string, linger time.Duration) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, one := range l.all {
		if one.topics.FollowUps {
			one.add(func(n *News) { n.addFollowUp(tenant, linger) })
		}
	}
}
