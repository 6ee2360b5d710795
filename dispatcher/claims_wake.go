package dispatcher

import (
	"context"
	"maps"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// arm sets the time of a line's next look, unless an earlier one is set.
func (h *claims) arm(line *claimLine, at time.Time) {
	if line.timer != nil && !at.Before(line.at) {
		return
	}
	if line.timer != nil {
		line.timer.Stop()
	}
	line.at = at
	var timer *time.Timer
	timer = time.AfterFunc(at.Sub(h.c.store.Clock.Now()), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if line.timer == timer {
			line.timer = nil
			h.look(line)
		}
	})
	line.timer = timer
}

// look serves a line now.
func (h *claims) look(line *claimLine) {
	if len(line.calls) > 0 {
		line.due = true
		h.start(line)
	}
}

// hear wakes the claimers that wait for a type with news: there may be tasks for them.
func (h *claims) hear(news store.News) {
	for key, announced := range news.Ready {
		for _, at := range []time.Time{announced.Due, announced.Later} {
			if !at.IsZero() {
				h.wake(key, at)
			}
		}
	}
	if news.Lost {
		h.wakeAll()
	}
	for tenant := range news.Changed {
		h.wakeTenant(tenant)
	}
}

// wake wakes the claimers of a type when its next task is due.
func (h *claims) wake(key store.TypeKey, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stages := h.lines[key]
	if stages == nil {
		return
	}
	now := h.c.store.Clock.Now()
	for _, line := range stages {
		if at.After(now) {
			h.arm(line, at)
		} else {
			h.look(line)
		}
	}
}

// wakeAll serves all lines now: announcements may have been lost.
func (h *claims) wakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, stages := range h.lines {
		for _, line := range stages {
			h.look(line)
		}
	}
}

// wakeTenant serves the lines of a tenant after a change of its configuration: windows may have
// opened.
func (h *claims) wakeTenant(tenant string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, stages := range h.lines {
		if key.Tenant != tenant {
			continue
		}
		for _, line := range stages {
			line.reopen = true
			h.look(line)
		}
	}
	maps.DeleteFunc(h.means, func(key store.TypeKey, _ map[string]float64) bool {
		_, err := h.c.store.Catalog.Type(key.Tenant, key.Type)
		return key.Tenant == tenant && err != nil
	})
}

// quiesce waits until no transaction for a type is under way that began before.
func (h *claims) quiesce(ctx context.Context, key store.TypeKey) {
	h.mu.Lock()
	var underWay []chan struct{}
	for _, line := range h.lines[key] {
		if line.underWay != nil {
			underWay = append(underWay, line.underWay)
		}
	}
	h.mu.Unlock()
	for _, ended := range underWay {
		select {
		case <-ended:
		case <-ctx.Done():
		}
	}
}
