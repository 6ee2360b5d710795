package slots

import "testing"

// A tenant that gives none of its slots back leaves slots for other tenants.
func TestBounded(t *testing.T) {
	t.Parallel()
	b := NewBounded(3, 2)
	ends := []func(){b.Acquire("stalled"), b.Acquire("stalled")}
	got := make(chan func())
	go func() { got <- b.Acquire("stalled") }()
	for range 10 {
		b.Acquire("other")()
	}
	select {
	case <-got:
		t.Fatal("the tenant has more slots than it may")
	default:
	}
	ends[0]()
	(<-got)()
	ends[1]()
}
