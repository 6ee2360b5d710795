package worker

// SetMostClaims sets how many open claims of a stage the worker may hold.
func (w *Worker) SetMostClaims(n int) { w.mostClaims = n }
