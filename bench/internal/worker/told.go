package worker

import (
	"encoding/json"
	"net/http"
	"time"
)

// noteEvent notes how long after the end of its task an event of on_final came.
func (w *worker) noteEvent(rw http.ResponseWriter, r *http.Request) {
	now := time.Now()
	var event struct {
		Data struct {
			FinishedAt time.Time `json:"finished_at"`
		} `json:"data"`
	}
	err := json.NewDecoder(r.Body).Decode(&event)
	if err != nil || event.Data.FinishedAt.IsZero() {
		http.Error(rw, "an event with data.finished_at is expected", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, now.Sub(event.Data.FinishedAt))
}

// lateness returns what noteEvent noted, in nanoseconds.
func (w *worker) lateness(rw http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = json.NewEncoder(rw).Encode(w.late)
}
