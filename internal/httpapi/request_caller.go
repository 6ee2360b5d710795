package httpapi

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/contract"
	"github.com/asyncflow/asyncflow/internal/httpapi/internal/listener"
	"github.com/asyncflow/asyncflow/store"
)

type principalKey struct{}

// principalOf returns the verified caller, which identify put into the context.
func principalOf(ctx context.Context) auth.Principal {
	p, _ := ctx.Value(principalKey{}).(auth.Principal)
	return p
}

type completionKey struct{}

// completionOf returns what the verified completion token of a call vouches for.
func completionOf(ctx context.Context) callbacks.Completion {
	c, _ := ctx.Value(completionKey{}).(callbacks.Completion)
	return c
}

type workerKey struct{}

// workerOf returns the name that the worker which calls gave; see asyncflow.WorkerName.
func workerOf(ctx context.Context) string {
	name, _ := ctx.Value(workerKey{}).(string)
	return name
}

// tenantOf returns the tenant that a verified caller acts for; "": none.
func tenantOf(ctx context.Context) string {
	if p, ok := ctx.Value(principalKey{}).(auth.Principal); ok {
		return p.Tenant
	}
	return completionOf(ctx).Tenant
}

// identify proves who calls, and that the caller's scopes allow the call. The context that it
// returns carries the caller, once proven, even if there is an error.
func (s *Server) identify(
	ctx context.Context, c *fiber.Ctx, o *contract.Operation, values map[string]string,
) (context.Context, error) {
	if o.ID == "metrics" && s.cfg.OperatorMetrics {
		return s.identifyOperator(ctx, c)
	}
	if o.Access == contract.AccessOpen {
		return ctx, nil
	}
	token, err := s.tokenOf(c, o)
	if err != nil {
		return ctx, err
	}
	if o.Access == contract.AccessCompletion || o.ID == "claimTasks" {
		if name := asyncflow.WorkerName(c.Get(asyncflow.WorkerHeader)); name != "" {
			ctx = context.WithValue(ctx, workerKey{}, strings.Clone(name))
		}
		c.Request().Header.Del(asyncflow.WorkerHeader) // the generated code refuses two of them
	}
	if o.Access == contract.AccessCompletion {
		return s.identifyWorker(ctx, token, values["id"])
	}
	if o.Deliveries && (callbacks.IsCompletionToken(token) || token == callbacks.TestToken) {
		return s.identifyDelivery(ctx, token)
	}
	p, err := s.cfg.Verifier.Verify(ctx, token, time.Now())
	if err != nil {
		return ctx, err
	}
	ctx = context.WithValue(ctx, principalKey{}, p)
	if err := o.Allow(p); err != nil {
		return ctx, err
	}
	if p.Kind == auth.KindOperator { // acts for no tenant
		return ctx, nil
	}
	return ctx, s.checkTenant(ctx, p)
}

// identifyConnection ends the anonymity of the connection of a verified caller or worker.
func identifyConnection(ctx context.Context, c *fiber.Ctx) {
	_, caller := ctx.Value(principalKey{}).(auth.Principal)
	_, worker := ctx.Value(completionKey{}).(callbacks.Completion)
	if conn, ok := c.Context().Conn().(*listener.Conn); ok && (caller || worker) {
		conn.Identify()
	}
}

// identifyOperator proves that an operator calls.
func (s *Server) identifyOperator(ctx context.Context, c *fiber.Ctx) (context.Context, error) {
	token, err := auth.Bearer(c.Get(fiber.HeaderAuthorization))
	if err != nil {
		return ctx, err
	}
	p, err := s.cfg.Verifier.Verify(ctx, token, time.Now())
	if err != nil {
		return ctx, err
	}
	return context.WithValue(ctx, principalKey{}, p), p.RequireKind(auth.KindOperator)
}

// tokenOf returns the token of a call: the one in Authorization or, if there is none, that of a
// session of the console. There are no sessions for a worker's calls.
func (s *Server) tokenOf(c *fiber.Ctx, o *contract.Operation) (string, error) {
	header := c.Get(fiber.HeaderAuthorization)
	if header == "" && s.cfg.Console != nil && o.Access == contract.AccessToken {
		token, err := s.cfg.Console.Token(c)
		if err != nil {
			return "", err
		}
		if token != "" {
			c.Set(fiber.HeaderCacheControl, "no-store") // caches know only Authorization as private
			return token, nil
		}
	}
	return auth.Bearer(header)
}

// identifyWorker proves that a worker was given the delivery that it reports on.
func (s *Server) identifyWorker(ctx context.Context, token, rawID string) (context.Context, error) {
	if token == callbacks.TestToken {
		return ctx, errTestDelivery
	}
	id, err := asyncflow.ParseTaskID(rawID)
	if err != nil {
		return ctx, err
	}
	completion, err := s.cfg.Keys.VerifyCompletion(token, id)
	return context.WithValue(ctx, completionKey{}, completion), err
}

var errTestDelivery = asyncflow.Errorf(asyncflow.CodeNotFound,
	"this was a test delivery: it belongs to no task, and nothing is reported on it")

// identifyDelivery proves that a caller was given a delivery, of any task. It refuses the caller
// while the tenant is suspended, like the tenant's own tokens.
func (s *Server) identifyDelivery(ctx context.Context, token string) (context.Context, error) {
	if token == callbacks.TestToken {
		return ctx, errTestDelivery
	}
	completion, err := s.cfg.Keys.Verify(token)
	ctx = context.WithValue(ctx, completionKey{}, completion)
	if err != nil {
		return ctx, err
	}
	t, err := s.knownTenant(ctx, completion.Tenant)
	if err != nil {
		return ctx, err
	}
	return ctx, t.Refusal()
}

// tokenLeeway is how far the clock of a token's issuer may be behind.
const tokenLeeway = 30 * time.Second

// checkTenant refuses a caller of a tenant that doesn't exist, is suspended, or was created after
// the token was issued. Operators can still resume a suspended tenant: they act for no tenant.
func (s *Server) checkTenant(ctx context.Context, p auth.Principal) error {
	t, err := s.knownTenant(ctx, p.Tenant)
	switch {
	case err != nil:
		return err
	case !t.TokensFrom.IsZero() && p.IssuedAt.Add(tokenLeeway).Before(t.TokensFrom):
		return asyncflow.Errorf(asyncflow.CodeUnauthenticated,
			"the token is older than the tenant: "+
				"it was issued to an earlier one of that name, or doesn't say when (claim iat)")
	case t.Suspended:
		return t.Refusal()
	}
	return nil
}

// knownTenant returns a tenant. It is CodeForbidden if the tenant doesn't exist.
func (s *Server) knownTenant(ctx context.Context, name string) (*store.Tenant, error) {
	catalog := s.cfg.Store.Catalog
	if t, ok := catalog.Tenant(name); ok {
		return t, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	err := catalog.RefreshTenant(ctx, name)
	t, ok := catalog.Tenant(name)
	switch {
	case ok:
		return t, nil
	case err != nil:
		return nil, err
	}
	return nil, asyncflow.Errorf(asyncflow.CodeForbidden, "there is no tenant %q: "+
		"an operator makes it with asyncflow tenants create", name)
}

// maxForwarded is how many addresses of X-Forwarded-For are read, from the last.
const maxForwarded = 16

// addressOf returns the address of the caller as a text. proxy is the address of the connection if
// it differs from the caller's.
func (s *Server) addressOf(c *fiber.Ctx) (address, proxy string) {
	caller, peer := s.callerOf(c)
	if caller == peer {
		return peer.String(), ""
	}
	return caller.String(), peer.String()
}

// callerOf returns the addresses of the caller and of the connection. The caller's is that of the
// connection or, if that is a trusted proxy's, the last untrusted address in X-Forwarded-For.
func (s *Server) callerOf(c *fiber.Ctx) (caller, peer netip.Addr) {
	peer, _ = netip.AddrFromSlice(c.Context().RemoteIP())
	peer = peer.Unmap()
	if s.trusts(peer) {
		return s.forwarded(c, peer), peer
	}
	return peer, peer
}

// forwarded reads X-Forwarded-For from the last address backwards, while the proxy that wrote the
// address is trusted. It stops at an address that it can't parse: nobody vouches for earlier ones.
func (s *Server) forwarded(c *fiber.Ctx, peer netip.Addr) netip.Addr {
	var all []string
	for _, header := range c.Request().Header.PeekAll(fiber.HeaderXForwardedFor) {
		all = append(all, strings.Split(string(header), ",")...)
	}
	caller := peer
	for i := len(all) - 1; i >= max(0, len(all)-maxForwarded) && s.trusts(caller); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(all[i]))
		if err != nil {
			break
		}
		caller = next.Unmap().WithZone("")
	}
	return caller
}

func (s *Server) trusts(a netip.Addr) bool {
	for _, p := range s.cfg.TrustedProxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
