package dispatcher

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/slots"
	"github.com/asyncflow/asyncflow/store"
)

// Workers ask for the tasks of a stage with mode claim. The calls for one stage form a line: one
// transaction at a time looks for tasks on behalf of all calls that came meanwhile, so that many
// small calls cost little more than a large one. A call that gets nothing waits, and costs the
// database nothing until a task is announced or becomes due.

const (
	// claimCalls is how many calls one transaction serves at most.
	claimCalls = 256
	// claimBytes bounds about the contexts that one transaction reads, and what tasks of its stage
	// are given besides.
	claimBytes = 4 << 20
	// claimMean is what the documents of a task are taken to have at first, in bytes.
	claimMean = 1 << 10
	// movePatience is how long a call that doesn't wait for tasks waits for a locked table, or for
	// a tenant that moves to another worker of Citus.
	movePatience = 3 * time.Second
	// releaseTime is how long a call may try to give back what it can't hand out.
	releaseTime = 2 * time.Second
	// claimTransactions is how many transactions for claims run at once.
	claimTransactions = 4
	// knownPause is the least time between two transactions for a call with a used-up window while
	// tasks are announced.
	knownPause = time.Second
)

// ClaimRequest asks for tasks of a stage.
type ClaimRequest struct {
	Type, Stage string
	Claimer     string
	Subject     string // of the caller's token; "": none
	Worker      string // the name that the worker gave; see asyncflow.WorkerName
	Named       bool   // the caller's token names the claimer
	Labels      asyncflow.ClaimerLabels
	Max         int           // tasks
	Wait        time.Duration // for the first one
	// Held are the tasks that the claimer knows as its own. It gets its other open claims first.
	Held []asyncflow.TaskID
	// Alive reports whether somebody still waits for the answer.
	Alive func() bool
}

// claims keeps the calls of workers that ask for tasks.
type claims struct {
	c     *Committer
	slots *slots.Slots // of transactions; one of them is for calls that do not wait for tasks
	looks atomic.Int64 // transactions, ever

	mu    sync.Mutex
	lines map[store.TypeKey]map[string]*claimLine // by stage; only stages with calls
	means map[store.TypeKey]map[string]float64    // by stage: see meanOf
}

// claimLine keeps the calls for one stage, in the order of their arrival.
type claimLine struct {
	key     store.TypeKey
	stage   string
	calls   []*claimCall
	due     bool // something may be due for the calls that wait
	reopen  bool // windows may have opened for the calls that wait
	running bool // a goroutine serves the line
	// underWay is closed when the transaction under way ends; nil: there is none.
	underWay chan struct{}
	at       time.Time // when timer fires
	timer    *time.Timer
}

// claimCall is a call that waits for tasks.
type claimCall struct {
	store.ClaimAsk
	waits  bool      // it stays when there is nothing
	until  time.Time // it stays until then when a table is locked
	alive  func() bool
	taken  bool // by the transaction under way
	gone   bool // nobody waits for the answer
	looked bool // it waits: nothing was there for it
	pages  int  // of the line, that it looked at in vain
	// stirred reports whether a task was announced while it went through the line: it may stand
	// where the call was.
	stirred bool
	// retryAt is when an announcement may next wake the call although its window is used up.
	retryAt time.Time
	done    chan claimResult
}

// wakes returns when a call may next be part of a transaction. With a used-up window it may still
// get tasks that its claimer was shown before, once they are in line again: an announcement may be
// for one of them.
func (l *claimLine) wakes(call *claimCall) time.Time {
	at := call.Opens
	if l.due && call.retryAt.Before(at) {
		at = call.retryAt
	}
	if call.Rest.After(at) {
		return call.Rest
	}
	return at
}

// mostPages is how many pages of a line a call that doesn't wait looks at. The claimer's next call
// goes on from there.
const mostPages = 10

// goesOn reports whether a call that got nothing looks at the next page of the line at once.
func (call *claimCall) goesOn() bool {
	return call.Further && (call.waits || call.pages < mostPages)
}

type claimResult struct {
	t    *store.Type
	more bool // as many tasks were there as were asked for
	err  error
}

func newClaims(c *Committer) *claims {
	return &claims{c: c, slots: slots.NewSlots(claimTransactions),
		lines: map[store.TypeKey]map[string]*claimLine{},
		means: map[store.TypeKey]map[string]float64{}}
}

// Claim leases tasks of a stage to a claimer and returns their deliveries. Without any, it waits
// until there are some, r.Wait is over, or ctx ends. A claimer makes one call at a time: a later
// one ends the one before. If the deliveries can't be handed out, the caller gives them back (see
// ReleaseClaims); otherwise they run out soon.
func (c *Committer) Claim(
	ctx context.Context, tenant string, r ClaimRequest,
) ([]asyncflow.Delivery, error) {
	key := store.TypeKey{Tenant: tenant, Type: r.Type}
	if _, err := c.claims.typeOf(ctx, key, r.Stage); err != nil {
		return nil, err
	}
	call := &claimCall{waits: r.Wait > 0, until: c.store.Clock.Now().Add(movePatience),
		alive: r.Alive, done: make(chan claimResult, 1),
		ClaimAsk: store.ClaimAsk{Claimer: r.Claimer, Subject: r.Subject, Worker: r.Worker,
			Named: r.Named, N: r.Max, Labels: r.Labels}}
	for _, id := range r.Held {
		if id.Type == r.Type {
			call.Held = append(call.Held, id.Number)
		}
	}
	c.claims.enter(key, r.Stage, call)
	if call.waits {
		timer := time.NewTimer(r.Wait)
		defer timer.Stop()
		select {
		case result := <-call.done:
			return call.deliveries(result, c.store.Clock.Now())
		case <-timer.C:
		case <-ctx.Done():
		}
		if c.claims.leave(key, r.Stage, call) {
			return nil, nil
		}
	}
	select {
	case result := <-call.done:
		return call.deliveries(result, c.store.Clock.Now())
	case <-ctx.Done():
	}
	if !c.claims.leave(key, r.Stage, call) {
		go call.refuse(c, tenant)
	}
	return nil, nil
}

// sameCaller reports whether two calls are of one claimer, with tokens of one subject.
func (call *claimCall) sameCaller(other *claimCall) bool {
	return call.Claimer == other.Claimer && call.Subject == other.Subject
}

// refuse gives back the tasks of a call that nobody waits for any more.
func (call *claimCall) refuse(c *Committer, tenant string) {
	if r := <-call.done; r.err == nil && len(call.Leases) > 0 {
		c.ReleaseClaims(tenant, call.Leases, "the caller is gone")
	}
}

// WaitingClaims returns how many calls wait for tasks to claim.
func (c *Committer) WaitingClaims() (n int) {
	c.claims.mu.Lock()
	defer c.claims.mu.Unlock()
	for _, stages := range c.claims.lines {
		for _, line := range stages {
			for _, call := range line.calls {
				if call.looked && !call.taken {
					n++
				}
			}
		}
	}
	return n
}

// ClaimLooks returns how often tasks to claim were looked for in the database, ever.
func (c *Committer) ClaimLooks() int64 { return c.claims.looks.Load() }

// typeOf returns a type if workers ask for the tasks of the stage.
func (h *claims) typeOf(ctx context.Context, key store.TypeKey, stage string) (*store.Type, error) {
	t, err := h.c.store.Catalog.Fresh(ctx, key.Tenant, key.Type)
	if err != nil {
		return nil, err
	}
	if !t.Claims(stage) {
		t, err = h.refreshed(ctx, key)
	}
	switch {
	case err != nil:
		return nil, err
	case t.StageIndex(stage) < 0:
		return nil, asyncflow.InvalidField("stage", "is %.40q, which is not a stage of %s", stage,
			t.Name)
	case !t.Claims(stage):
		return nil, asyncflow.Errorf(asyncflow.CodeConflict,
			"stage %s of %s has no mode claim: its tasks are sent to endpoints", stage, t.Name)
	}
	return t, nil
}

// refreshed returns a type as it stands in the database now.
func (h *claims) refreshed(ctx context.Context, key store.TypeKey) (*store.Type, error) {
	err := h.c.store.Catalog.RefreshTenant(ctx, key.Tenant)
	if err != nil {
		return nil, err
	}
	return h.c.store.Catalog.Type(key.Tenant, key.Type)
}

func (call *claimCall) deliveries(r claimResult, now time.Time) ([]asyncflow.Delivery, error) {
	if r.err != nil {
		return nil, r.err
	}
	all := make([]asyncflow.Delivery, len(call.Leases))
	for i, l := range call.Leases {
		life := l.Options.Lifetime
		all[i] = asyncflow.Delivery{Tenant: r.t.Tenant, Lease: l, At: now,
			Deadline:    life.EndsBefore(l.Until),
			Latest:      life.EndsBefore(now.Add(r.t.ProcessingTime(l.Stage))),
			TypeVersion: r.t.Version,
			MaxAttempts: r.t.MaxAttempts(l.Stage, l.Options), Links: r.t.LinksAfter(l.Stage)}
	}
	return all, nil
}

// ReleaseClaims puts tasks back in line after their deliveries could not be handed out. Leases that
// it can't end run out soon.
func (c *Committer) ReleaseClaims(tenant string, leases []asyncflow.Lease, why string) {
	ctx, cancel := context.WithTimeout(c.writing, releaseTime)
	defer cancel()
	err := c.takeBackClaims(ctx, tenant, leases, why)
	if err != nil {
		c.log.Warn("release claims", "tenant", tenant, "type", leases[0].ID.Type, "error", err)
	}
}

func (c *Committer) takeBackClaims(
	ctx context.Context, tenant string, leases []asyncflow.Lease, why string,
) error {
	t, err := c.store.Catalog.Type(tenant, leases[0].ID.Type)
	if err != nil {
		return err
	}
	_, err = c.store.TakeBackClaims(ctx, t, leases, why)
	return err
}

// enter puts a call in its line. An earlier call of the same claimer ends.
func (h *claims) enter(key store.TypeKey, stage string, call *claimCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stages := h.lines[key]
	if stages == nil {
		stages = map[string]*claimLine{}
		h.lines[key] = stages
	}
	line := stages[stage]
	if line == nil {
		line = &claimLine{key: key, stage: stage}
		stages[stage] = line
	}
	for i, other := range line.calls {
		if other.sameCaller(call) && !other.taken {
			other.done <- claimResult{}
			line.calls = slices.Delete(line.calls, i, i+1)
			break
		}
	}
	line.calls = append(line.calls, call)
	h.start(line)
}

// leave removes a call. If a transaction serves it, its result comes soon.
func (h *claims) leave(key store.TypeKey, stage string, call *claimCall) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := h.lines[key][stage]
	if call.waits = false; call.taken || line == nil {
		return false
	}
	i := slices.Index(line.calls, call)
	if i < 0 { // it has a result
		return false
	}
	line.calls = slices.Delete(line.calls, i, i+1)
	h.tidy(line)
	return true
}

// tidy drops a line without calls. h.mu is held, as in all functions below that don't take it.
func (h *claims) tidy(line *claimLine) {
	if len(line.calls) > 0 || line.running {
		return
	}
	if line.timer != nil {
		line.timer.Stop()
	}
	stages := h.lines[line.key]
	if delete(stages, line.stage); len(stages) == 0 {
		delete(h.lines, line.key)
	}
}
