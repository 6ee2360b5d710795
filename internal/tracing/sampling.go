package tracing

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// sampled decides whether a span is recorded. from is the context that a caller gave, as the parent
// or as the link of the span: a link counts as a parent does. own is the trace of the span, with
// an id that is no caller's choice. over reports that it would be recorded but for its budget.
//
// Anybody can mark a trace as sampled, or choose an id that a ratio takes. So a span that is
// recorded because of from counts against the budget of its tenant, and isn't recorded over it.
// Whether from is a span of this or another node isn't known, so these count, too.
func (t *Tracer) sampled(
	tenant string, from trace.SpanContext, own trace.TraceID,
) (yes, over bool) {
	if !from.IsValid() || t.budget == nil {
		return t.takes(own), false
	}
	yes = from.IsSampled()
	if !t.settings.parentBased {
		yes = t.takes(from.TraceID())
	}
	over = yes && !t.budget.allows(tenant)
	return yes && !over, over
}

// takes reports whether the sampler takes a trace that nobody decided about.
func (t *Tracer) takes(id trace.TraceID) bool {
	r := t.settings.root.ShouldSample(sdktrace.SamplingParameters{TraceID: id})
	return r.Decision == sdktrace.RecordAndSample
}

const (
	// maxBudgets bounds the tenants that are remembered. One that comes again gets a full budget.
	maxBudgets = 4096
	// budgetShares is how many tenants may use up their budgets at once.
	budgetShares = 5
)

// budget bounds the spans that callers cause.
type budget struct {
	perTenant int // a second, and at once
	all       *rate.Limiter

	mu      sync.Mutex
	tenants *simplelru.LRU[string, *rate.Limiter]
}

// newBudget returns nil for a budget of 0.
func newBudget(perTenant int) *budget {
	if perTenant <= 0 {
		return nil
	}
	tenants, err := simplelru.NewLRU[string, *rate.Limiter](maxBudgets, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	all := perTenant * budgetShares
	return &budget{perTenant: perTenant, all: rate.NewLimiter(rate.Limit(all), all),
		tenants: tenants}
}

func (b *budget) allows(tenant string) bool { return b.ofTenant(tenant).Allow() && b.all.Allow() }

func (b *budget) ofTenant(tenant string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, known := b.tenants.Get(tenant)
	if !known {
		l = rate.NewLimiter(rate.Limit(b.perTenant), b.perTenant)
		b.tenants.Add(tenant, l)
	}
	return l
}
