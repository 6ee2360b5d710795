package ledger

// Reserve takes capacity for up to a.N tasks, and returns for how many.
func (l *Ledger) Reserve(a Ask) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.mostOnArrival(a)
	l.reserve(a, n)
	return n
}
