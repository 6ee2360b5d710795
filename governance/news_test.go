package governance_test

import (
	"testing"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// listen calls ready with each announced time of a type, and lost when announcements may be lost,
// until the test ends.
func listen(t *testing.T, s *store.Store, ready func(store.TypeKey, time.Time), lost func()) {
	t.Helper()
	l := s.Wakeups.Listen(store.Topics{Tasks: true})
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case <-l.Changed():
			}
			news := l.Read()
			if news.Lost {
				lost()
			}
			for key, announced := range news.Ready {
				for _, at := range []time.Time{announced.Due, announced.Later} {
					if !at.IsZero() {
						ready(key, at)
					}
				}
			}
		}
	}()
}
