package worker

import (
	"net/http"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
)

// deliverBatch takes a batch of deliveries and answers that all are done.
func (w *worker) deliverBatch(rw http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	body, release, err := w.body(r)
	defer release()
	answer := []byte(`{"results":[`)
	var numbers []int
	for rest := body; err == nil; {
		var id []byte
		if id, rest = payload.Between(rest, `"task_id":"`, `"`); id == nil {
			break
		}
		n, ok := payload.Number(rest)
		if !ok {
			break
		}
		if numbers = append(numbers, n); len(numbers) > 1 {
			answer = append(answer, ',')
		}
		answer = append(append(append(answer, `{"task_id":"`...), id...), `"}`...)
	}
	if len(numbers) == 0 {
		http.Error(rw, "deliveries with context.n are expected", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	for _, n := range numbers {
		w.arrived(n, now)
	}
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(append(answer, "]}"...))
}
