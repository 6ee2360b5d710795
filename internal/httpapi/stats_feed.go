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

// statsFeeds are the feeds of the tenants whose stats are followed.
type statsFeeds struct {
	read     func(ctx context.Context, tenant string) ([]store.Stats, error)
	stopping context.Context

	mu       sync.Mutex
	byTenant map[string]*statsFeed
}

// follow returns a tenant's feed, which lasts until all that follow it have called leave.
func (s *statsFeeds) follow(tenant string) (feed *statsFeed, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	feed = s.byTenant[tenant]
	if feed == nil {
		ctx, stop := context.WithCancel(s.stopping)
		feed = &statsFeed{stop: stop, changed: make(chan struct{})}
		s.byTenant[tenant] = feed
		go feed.run(ctx, func(ctx context.Context) ([]store.Stats, error) { return s.read(ctx, tenant) })
	}
	feed.followers++
	return feed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if feed.followers--; feed.followers == 0 {
			feed.stop()
			delete(s.byTenant, tenant)
		}
	}
}

// statsFeed has the stats of a tenant, as JSON, and says when they change. One goroutine reads
// them for all streams.
type statsFeed struct {
	followers int // under the lock of statsFeeds
	stop      context.CancelFunc

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	version int64         // of the last change
	whole   int64         // the version from which a type was last removed
	types   []statsDoc    // by name
	err     error         // of the last read
}

// statsDoc is the stats of a type as JSON, and the version in which they came to be so.
type statsDoc struct {
	name    string
	doc     []byte
	version int64
}

func (f *statsFeed) run(
	ctx context.Context, read func(context.Context) ([]store.Stats, error),
) {
	for {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, requestTime)
		stats, err := read(bounded)
		cancel()
		f.put(stats, err)
		pause := time.NewTimer(max(statsEvery, (statsShare-1)*time.Since(began)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// put takes in what was read. stats are sorted by type.
func (f *statsFeed) put(stats []store.Stats, err error) {
	docs := make([]statsDoc, len(stats))
	for i, s := range stats {
		if docs[i].doc, err = encode(statsOut(s)); err != nil {
			break
		}
		docs[i].name, docs[i].doc = s.Type, bytes.TrimSuffix(docs[i].doc, []byte("\n"))
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

// replace sets the stats of all types, and reports whether they are those of before.
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
		f.whole, same = f.version+1, false
	}
	f.types = docs
	return same
}

// since returns what has changed since a version: all is true if the list begins anew. The error
// is that of the last read. version is 0 until the first one.
func (f *statsFeed) since(version int64) (
	docs []statsDoc, all bool, now int64, changed <-chan struct{}, err error,
) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all = f.version > 0 && (version == 0 || f.whole > version)
	for _, d := range f.types {
		if all || d.version > version {
			docs = append(docs, d)
		}
	}
	return docs, all, f.version, f.changed, f.err
}
