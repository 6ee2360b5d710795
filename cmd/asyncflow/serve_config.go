package main

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/node"
	"github.com/asyncflow/asyncflow/store"
)

// config checks the flags and returns what the node needs, without its listeners.
func (c *serveCmd) config(log *slog.Logger, env lookup) (node.Config, error) {
	cfg := node.Config{Roles: c.Roles, Secret: []byte(c.Secret), Grace: c.Grace, Log: log,
		DrainDelay: c.DrainDelay, Metrics: c.metricsMode(), Alerts: c.Alerts.operatorAlerts()}
	if err := c.check(); err != nil {
		return cfg, err
	}
	var err error
	if cfg.OldSecrets, err = oldSecrets(c.Old); err != nil {
		return cfg, err
	}
	if err = c.configParts(&cfg); err != nil {
		return cfg, err
	}
	if err = c.Alerts.check(cfg.API.Egress); err != nil {
		return cfg, err
	}
	if slices.Contains(c.Roles, node.RoleAPI) { // the only role that verifies tokens
		err = c.Signing.trust(env, &cfg)
	}
	return cfg, err
}

// configParts configures store, sender, dispatcher, governance and API.
func (c *serveCmd) configParts(cfg *node.Config) error {
	public, err := c.publicURL()
	if err != nil {
		return err
	}
	timetable, err := c.Jobs.timetable()
	if err != nil {
		return err
	}
	egress, err := c.Egress.policy(c.AllowHTTP, c.AllowPrivateNetworks)
	if err != nil {
		return err
	}
	quotas, err := defaultQuotas(c.DefaultQuotas)
	if err != nil {
		return err
	}
	proxies, err := c.Audit.proxies()
	if err != nil {
		return err
	}
	cfg.Store = store.Config{URL: c.DatabaseURL, PooledURL: c.PooledURL, Node: node.NewName(),
		Build: version, Roles: strings.Join(c.Roles, ","), Pool: c.Pool, HotPool: c.HotPool,
		Notify: c.Notify, NoRoles: c.DBRoles.off(), NotDistributed: c.Citus.off(),
		DefaultQuotas: quotas, MaxContext: c.MaxContext, Log: cfg.Log}
	cfg.Callbacks = callbacks.Config{PublicURL: public, Version: version, Egress: egress}
	cfg.Dispatcher = dispatcher.Config{Concurrency: c.Concurrency, ContextBytes: c.ContextBytes}
	if !c.Notify {
		cfg.Dispatcher.Poll = c.Poll
	}
	cfg.Governance = governance.Config{Timetable: timetable,
		AuditRetention: c.Audit.AuditRetention}
	cfg.API = httpapi.Config{Version: version, MaxBody: c.MaxBody, MaxContext: c.MaxContext,
		Egress: egress, VerifyEndpoints: c.VerifyEndpoints, TrustedProxies: proxies}
	c.Limits.apply(&cfg.API)
	cfg.Console, err = c.Console.config(public)
	return err
}

// metricsMode returns where --metrics wants them; MetricsApart goes with an address.
func (c *serveCmd) metricsMode() node.MetricsMode {
	switch c.Metrics {
	case "api":
		return node.MetricsOnAPI
	case "open":
		return node.MetricsOpen
	case "off":
		return node.MetricsOff
	}
	return node.MetricsApart
}

// check refuses flags that are wrong by themselves.
func (c *serveCmd) check() error {
	for _, role := range c.Roles {
		if !slices.Contains(node.AllRoles(), role) {
			return asyncflow.InvalidField("--roles", "has %q; the roles are %s",
				role, strings.Join(node.AllRoles(), ", "))
		}
	}
	if len(c.Secret) < callbacks.MinSecretBytes {
		return asyncflow.InvalidField("ASYNCFLOW_SECRET",
			"is %d bytes; it must be at least %d", len(c.Secret), callbacks.MinSecretBytes)
	}
	if err := c.checkSamples(); err != nil {
		return err
	}
	if err := c.checkNumbers(); err != nil {
		return err
	}
	if err := c.Limits.check(c.MaxBody); err != nil {
		return err
	}
	return checkRetention(c.Audit.AuditRetention)
}

// sampleSecret is how the secrets in docker-compose.yml begin, which everyone knows.
const sampleSecret = "dev-only-"

// checkSamples refuses sample secrets, unless the node is for a trial on one machine, as its other
// settings say.
func (c *serveCmd) checkSamples() error {
	if c.AllowHTTP && c.AllowPrivateNetworks {
		return nil
	}
	for _, s := range []struct{ name, value string }{
		{"ASYNCFLOW_SECRET", c.Secret},
		{"ASYNCFLOW_JWT_SECRET", c.Signing.JWTSecret},
	} {
		if strings.HasPrefix(s.value, sampleSecret) {
			return asyncflow.InvalidField(s.name, "is a sample that everyone knows: make one by "+
				"openssl rand -hex 32. It is taken only with --allow-http and "+
				"--allow-private-networks, for a trial on one machine")
		}
	}
	return nil
}

// defaultQuotas reads the quotas of tenants without their own.
func defaultQuotas(items []string) (asyncflow.Quotas, error) {
	changes, err := asyncflow.ParseQuotas(items)
	if err != nil {
		return asyncflow.Quotas{}, rename("--default-quotas", err)
	}
	return asyncflow.Quotas{}.With(changes)
}

// checkNumbers refuses limits that are out of range.
func (c *serveCmd) checkNumbers() error {
	for _, f := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"--concurrency", c.Concurrency, 1, 100_000},
		{"--context-bytes", c.ContextBytes, 1 << 20, 1 << 40},
		{"--pool", c.Pool, 2, 10_000},
		{"--hot-pool", c.HotPool, 2, 10_000},
		{"--max-context", c.MaxContext, 1, 64 << 20},
		{"--max-body", c.MaxBody, 1, 1 << 30},
		{"--trace-limit", c.TraceLimit, 0, 100_000},
	} {
		if f.value < f.least || f.value > f.most {
			return asyncflow.InvalidField(f.name,
				"is %d; it must be %d to %d", f.value, f.least, f.most)
		}
	}
	if c.Grace <= 0 || c.Grace > time.Hour {
		return asyncflow.InvalidField("--grace",
			"is %s; it must be above 0s, and 1h at most", c.Grace)
	}
	if c.DrainDelay < 0 || c.DrainDelay > time.Hour {
		return asyncflow.InvalidField("--drain-delay", "is %s; it must be 0s to 1h", c.DrainDelay)
	}
	if c.Poll < 10*time.Millisecond || c.Poll > time.Hour {
		return asyncflow.InvalidField("--poll", "is %s; it must be 10ms to 1h", c.Poll)
	}
	return nil
}

// publicURL returns the URL at which workers reach the API, without a slash at its end; ""
// if it follows from the address of the API.
func (c *serveCmd) publicURL() (string, error) {
	if c.PublicURL == "" && slices.Contains(c.Roles, node.RoleAPI) {
		return "", nil // known once the API listens
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		u.RawQuery != "" || strings.ContainsAny(c.PublicURL, `"\`) {
		return "", asyncflow.InvalidField("--public-url",
			"is %q; it must be an absolute URL such as https://tasks.example.com", c.PublicURL)
	}
	return strings.TrimRight(c.PublicURL, "/"), nil
}
