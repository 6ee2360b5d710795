package httpapi

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// statsEvery is the least time between two reads of a feed.
const statsEvery = 2 * time.Second

// statsShare bounds what a feed takes from the database: of n units of time, at most one is spent
// on reading.
const statsShare = 20

// statsRetry is the longest time after a read that failed.
const statsRetry = 30 * time.Second

// statsReads is how many feeds of a node read at once.
const statsReads = 2

// statsFeeds are the feeds of the tenants with followers of their stats.
type statsFeeds struct {
	read     func(ctx context.Context, tenant string) ([]store.Stats, error)
	reading  chan struct{} // with statsReads slots
	stopping context.Context

	mu       sync.Mutex
	byTenant map[string]*statsFeed
}

func newStatsFeeds(
	stopping context.Context, read func(context.Context, string) ([]store.Stats, error),
) *statsFeeds {
	return &statsFeeds{read: read, stopping: stopping, byTenant: map[string]*statsFeed{},
		reading: make(chan struct{}, statsReads)}
}

// follow returns a tenant's feed. It lasts until all that follow it call leave, and then until its
// next read would be due: clients that come back earlier make it read no more often.
func (s *statsFeeds) follow(tenant string) (feed *statsFeed, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	feed = s.byTenant[tenant]
	if feed == nil {
		feed = &statsFeed{changed: make(chan struct{})}
		s.byTenant[tenant] = feed
		go s.run(feed, tenant)
	}
	feed.followers++
	return feed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		feed.followers--
	}
}

// run reads a feed as long as it is followed.
func (s *statsFeeds) run(feed *statsFeed, tenant string) {
	for over := false; !over; over = s.end(feed, tenant) {
		pause := time.NewTimer(feed.take(s.readOne(tenant)))
		select {
		case <-s.stopping.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// end removes a feed without followers, and reports whether it had none.
func (s *statsFeeds) end(feed *statsFeed, tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if feed.followers > 0 {
		return false
	}
	delete(s.byTenant, tenant)
	return true
}

// readOne reads a tenant's stats, and returns how long that took.
func (s *statsFeeds) readOne(tenant string) ([]store.Stats, time.Duration, error) {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
	case <-s.stopping.Done():
		return nil, 0, s.stopping.Err()
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.stopping, requestTime)
	defer cancel()
	stats, err := s.read(ctx, tenant)
	return stats, time.Since(began), err
}

// statsFeed holds the stats of a tenant, as JSON, and says when they change. One goroutine reads
// them for all streams.
type statsFeed struct {
	followers int // under the lock of statsFeeds

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	version int64         // of the last change
	removed int64         // the version in which a type was last removed
	types   []statsDoc    // by name
	err     error         // of the last read
}

// statsDoc is the stats of a type as JSON, and the version in which they came to be so.
type statsDoc struct {
	name    string
	doc     []byte
	version int64
}

// take takes in what was read, and returns how long to wait before the next read.
func (f *statsFeed) take(stats []store.Stats, took time.Duration, err error) time.Duration {
	f.put(stats, err)
	wait := max(statsEvery, (statsShare-1)*took)
	if err != nil {
		wait = min(wait, statsRetry)
	}
	return wait
}

// put takes in what was read. stats are sorted by type.
func (f *statsFeed) put(stats []store.Stats, err error) {
	docs := make([]statsDoc, len(stats))
	for i, s := range stats {
		doc, failed := encode(statsOut(s))
		if failed != nil {
			err = failed
			break
		}
		docs[i].name, docs[i].doc = s.Type, bytes.TrimSuffix(doc, []byte("\n"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	same := f.version > 0 && err == nil && f.err == nil
	f.err = err
	if err == nil {
		same = f.replace(docs) && same
	}
	if same {
		return
	}
	f.version++
	close(f.changed)
	f.changed = make(chan struct{})
}

// replace sets the stats of all types, and reports whether they are the same as before.
func (f *statsFeed) replace(docs []statsDoc) (same bool) {
	before := make(map[string]statsDoc, len(f.types))
	for _, d := range f.types {
		before[d.name] = d
	}
	same = true
	for i, d := range docs {
		old, known := before[d.name]
		docs[i].version = old.version
		if !known || !bytes.Equal(old.doc, d.doc) {
			docs[i].version, same = f.version+1, false
		}
		delete(before, d.name)
	}
	if len(before) > 0 { // some were removed
		f.removed, same = f.version+1, false
	}
	f.types = docs
	return same
}

// since returns what changed since a version: all is true if the list begins anew. The error is
// that of the last read. version is 0 until the first one.
func (f *statsFeed) since(
	version int64,
) (docs []statsDoc, all bool, now int64, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all = f.version > 0 && (version == 0 || f.removed > version)
	for _, d := range f.types {
		if all || d.version > version {
			docs = append(docs, d)
		}
	}
	return docs, all, f.version, f.changed, f.err
}
