package worker

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/payload"
)

// deliverChild answers a child with the number of its parent as its output, and doesn't note when
// it came.
func (w *worker) deliverChild(rw http.ResponseWriter, r *http.Request) {
	body, release, err := w.body(r)
	defer release()
	n, ok := payload.Number(body)
	if err != nil || !ok {
		http.Error(rw, "a body with context.n is expected", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.counts.Deliveries++
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(rw, `{"output":{"n":%d}}`, n)
}

// deliverJoin notes when a task came to the stage after its children.
func (w *worker) deliverJoin(rw http.ResponseWriter, r *http.Request) {
	now := time.Now().UnixNano()
	body, release, err := w.body(r)
	defer release()
	text, _ := payload.Between(body, `"results":[{"n":`, "}")
	n, bad := strconv.Atoi(string(text))
	if err != nil || bad != nil {
		http.Error(rw, "a body with the results of children is expected", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrived(n, now)
}
