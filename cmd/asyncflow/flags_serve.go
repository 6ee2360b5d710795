package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/console"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/node"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/store"
)

// alertFlags set the destination of the operator's alerts.
type alertFlags struct {
	AlertURL    string `env:"ASYNCFLOW_ALERT_URL" placeholder:"URL"`
	AlertSecret string `env:"ASYNCFLOW_ALERT_SECRET"`
}

// check names the flag that is wrong.
func (f alertFlags) check(egress asyncflow.Egress) error {
	if f.AlertURL == "" {
		return nil
	}
	e := asyncflow.Endpoint{Type: asyncflow.AlertType, Stage: asyncflow.AlertStage, URL: f.AlertURL}
	if err := rename("--alert-url", e.Validate(egress)); err != nil {
		return err
	}
	return rename("ASYNCFLOW_ALERT_SECRET", signing.CheckSecret(f.AlertSecret))
}

// rename replaces the field in an error by the name of a flag.
func rename(flag string, err error) error {
	if known := new(asyncflow.Error); errors.As(err, &known) && len(known.Fields) > 0 {
		return asyncflow.InvalidField(flag, "%s", known.Fields[0].Message)
	}
	return err
}

// createTenant creates the operator's tenant, if alerts are set.
func (f alertFlags) createTenant(ctx context.Context, database store.Config) error {
	if f.AlertURL == "" {
		return nil
	}
	created, err := store.CreateTenant(ctx, database.URL, asyncflow.OperatorTenant,
		store.WithoutRoles(database.NoRoles), store.NotDistributed(database.NotDistributed))
	if err != nil || !created {
		return err
	}
	b := auditedCommand{url: database.URL, action: "tenant.create", objectType: "tenant",
		object: asyncflow.OperatorTenant}
	return b.do(ctx, func() error { return nil })
}

// operatorAlerts returns the flags as a node takes them.
func (f alertFlags) operatorAlerts() node.OperatorAlerts {
	return node.OperatorAlerts{URL: f.AlertURL, Secret: f.AlertSecret}
}

// auditFlags set the retention of the audit, and the proxies that it trusts.
type auditFlags struct {
	AuditRetention time.Duration `env:"ASYNCFLOW_AUDIT_RETENTION" default:"8760h"`
	TrustedProxies []string      `env:"ASYNCFLOW_TRUSTED_PROXIES" placeholder:"CIDR"`
}

// checkRetention refuses a retention that is out of range.
func checkRetention(d time.Duration) error {
	if d < asyncflow.MinAuditRetention || d > asyncflow.MaxAuditRetention {
		return asyncflow.InvalidField("--audit-retention",
			"is %s; it must be 24h to 87600h (10 years)",
			d)
	}
	return nil
}

// proxies returns the networks of the trusted proxies. A single address is a network as well.
func (f auditFlags) proxies() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range f.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if a, err2 := netip.ParseAddr(text); err2 == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		}
		if err != nil || p.Addr().Is4In6() {
			return nil, asyncflow.InvalidField("--trusted-proxies",
				"has %q; it must be networks such as 10.0.0.0/8 or fd00::/8", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// consoleFlags set up the web console and its login at an issuer.
type consoleFlags struct {
	Console       bool   `env:"ASYNCFLOW_CONSOLE" default:"true" negatable:""`
	InstanceName  string `env:"ASYNCFLOW_INSTANCE_NAME" placeholder:"NAME"`
	InstanceColor string `env:"ASYNCFLOW_INSTANCE_COLOR" placeholder:"#RRGGBB"`
	TraceURL      string `env:"ASYNCFLOW_TRACE_URL" placeholder:"URL"`

	OIDCIssuer       string   `env:"ASYNCFLOW_OIDC_ISSUER" placeholder:"URL"`
	OIDCClientID     string   `env:"ASYNCFLOW_OIDC_CLIENT_ID" placeholder:"ID"`
	OIDCClientSecret string   `env:"ASYNCFLOW_OIDC_CLIENT_SECRET"`
	OIDCScopes       []string `env:"ASYNCFLOW_OIDC_SCOPES" default:"openid"`
	OIDCToken        string   `env:"ASYNCFLOW_OIDC_TOKEN" enum:"id,access" default:"id"`
}

// config returns the console of a node with a public URL, "" if it isn't set; nil: there is none.
func (f consoleFlags) config(publicURL string) (*console.Config, error) {
	if !f.Console {
		return nil, nil
	}
	cfg := &console.Config{
		Instance: console.Instance{Name: f.InstanceName, Color: f.InstanceColor},
		TraceURL: f.TraceURL,
		OIDC: console.OIDC{Issuer: f.OIDCIssuer, ClientID: f.OIDCClientID,
			ClientSecret: f.OIDCClientSecret, Token: f.OIDCToken},
	}
	for _, scopes := range f.OIDCScopes { // issuers write them with spaces between
		cfg.OIDC.Scopes = append(cfg.OIDC.Scopes, strings.Fields(scopes)...)
	}
	if err := cfg.Instance.Check(); err != nil {
		return nil, renamed(err, "--", nil)
	}
	if err := console.CheckTraceURL(cfg.TraceURL); err != nil {
		return nil, renamed(err, "--", nil)
	}
	if err := cfg.OIDC.Check(); err != nil {
		return nil, renamed(err, "--", nil)
	}
	if f.OIDCIssuer != "" && publicURL == "" {
		return nil, asyncflow.InvalidField("--public-url",
			"is required with --oidc-issuer, which sends browsers back there")
	}
	return cfg, nil
}

// egressFlags list allowed and denied destinations of deliveries.
type egressFlags struct {
	EgressAllow []string `env:"ASYNCFLOW_EGRESS_ALLOW" placeholder:"RULE"`
	EgressDeny  []string `env:"ASYNCFLOW_EGRESS_DENY" placeholder:"RULE"`
}

// policy returns the policy for deliveries. An error names the invalid entry.
func (f egressFlags) policy(allowHTTP, allowPrivate bool) (asyncflow.Egress, error) {
	allow, err := asyncflow.ParseAllowed(f.EgressAllow)
	if err != nil {
		return asyncflow.Egress{}, asyncflow.InvalidField("--egress-allow", "%v", err)
	}
	deny, err := asyncflow.ParseDenied(f.EgressDeny)
	if err != nil {
		return asyncflow.Egress{}, asyncflow.InvalidField("--egress-deny", "%v", err)
	}
	return asyncflow.Egress{AllowHTTP: allowHTTP, AllowPrivate: allowPrivate, Allow: allow,
		Deny: deny}, nil
}

// jobFlags set when background jobs run.
type jobFlags struct {
	Job []string `env:"ASYNCFLOW_JOBS" sep:"none" placeholder:"NAME=SPEC"`
}

// timetable returns cron specs by job. An error names the invalid entry.
func (f jobFlags) timetable() (map[string]string, error) {
	timetable := map[string]string{}
	for _, text := range f.Job {
		for _, entry := range splitJobs(text) {
			name, spec, ok := strings.Cut(entry, "=")
			name = strings.TrimSpace(name)
			spec = strings.TrimSpace(spec)
			if _, twice := timetable[name]; !ok || twice {
				return nil, asyncflow.InvalidField("--job",
					"has %q; it must be NAME=SPEC, each job once, such as rescue=@every 5s,forget=off", entry)
			}
			timetable[name] = spec
		}
	}
	err := governance.CheckTimetable(timetable)
	if known := new(asyncflow.Error); errors.As(err, &known) {
		return nil, asyncflow.InvalidField("--job", "%s", known.Detail())
	}
	return timetable, err
}

// splitJobs splits a list at its commas, except for commas within a cron spec: a part without "="
// belongs to the entry before.
func splitJobs(text string) []string {
	var entries []string
	for part := range strings.SplitSeq(text, ",") {
		if n := len(entries); n > 0 && !strings.Contains(part, "=") {
			entries[n-1] += "," + part
			continue
		}
		entries = append(entries, part)
	}
	return entries
}

// limitFlags bound the resources that callers of the API may use.
type limitFlags struct {
	MaxConnections          int `env:"ASYNCFLOW_MAX_CONNECTIONS" default:"10000"`
	MaxAnonymousConnections int `env:"ASYNCFLOW_MAX_ANONYMOUS_CONNECTIONS" default:"0"`
	MaxConnectionsPerIP     int `env:"ASYNCFLOW_MAX_CONNECTIONS_PER_IP" default:"0"`
	MaxStreams              int `env:"ASYNCFLOW_MAX_STREAMS" default:"2000"`
	MaxStreamsPerTenant     int `env:"ASYNCFLOW_MAX_STREAMS_PER_TENANT" default:"0"`
	MaxBodyMemory           int `env:"ASYNCFLOW_MAX_BODY_MEMORY" default:"134217728"`
	MaxBodyMemoryPerTenant  int `env:"ASYNCFLOW_MAX_BODY_MEMORY_PER_TENANT" default:"0"`
}

// check refuses limits that are out of range. maxBody is the largest request body in bytes: the
// budgets must hold at least one.
func (f limitFlags) check(maxBody int) error {
	const most = 1_000_000
	const mostBytes = 1 << 40
	for _, n := range []struct {
		name              string
		value, from, upTo int
	}{
		{"--max-connections", f.MaxConnections, 1, most},
		{"--max-anonymous-connections", f.MaxAnonymousConnections, 0, f.MaxConnections},
		{"--max-connections-per-ip", f.MaxConnectionsPerIP, 0, most},
		{"--max-streams", f.MaxStreams, 1, most},
		{"--max-streams-per-tenant", f.MaxStreamsPerTenant, 0, f.MaxStreams},
		{"--max-body-memory", f.MaxBodyMemory, 4 * maxBody, mostBytes},
		{"--max-body-memory-per-tenant", cmp.Or(f.MaxBodyMemoryPerTenant, maxBody), maxBody,
			f.MaxBodyMemory},
	} {
		if n.value < n.from || n.value > n.upTo {
			return asyncflow.InvalidField(n.name, "is %d; it must be %d to %d", n.value, n.from,
				n.upTo)
		}
	}
	return nil
}

// apply sets the limits in the configuration of the API.
func (f limitFlags) apply(c *httpapi.Config) {
	c.Connections = httpapi.ConnectionConfig{Max: f.MaxConnections,
		MaxAnonymous: f.MaxAnonymousConnections, MaxPerAddress: f.MaxConnectionsPerIP}
	c.Streams = httpapi.StreamConfig{Max: f.MaxStreams, MaxPerTenant: f.MaxStreamsPerTenant}
	c.Bodies = httpapi.BodyConfig{Max: f.MaxBodyMemory, MaxPerTenant: f.MaxBodyMemoryPerTenant}
}

// databaseFlag names the database of an administrative command; by default that of a running dev
// server.
type databaseFlag struct {
	DatabaseURL string `env:"DATABASE_URL" dev:"database" required:"" placeholder:"URL"`
	rolesFlag   `embed:""`
}

// rolesFlag switches the database roles, which keep tenants apart within Postgres.
type rolesFlag struct {
	DatabaseRoles string `env:"ASYNCFLOW_DATABASE_ROLES" enum:"on,off" default:"on"`
}

func (f rolesFlag) off() bool { return f.DatabaseRoles == "off" }

// citusFlag says whether tenants are distributed.
type citusFlag struct {
	Distributed string `env:"ASYNCFLOW_DISTRIBUTED" enum:"auto,off" default:"auto"`
}

func (f citusFlag) off() bool { return f.Distributed == "off" }

// option returns the flag as an option of the store.
func (f rolesFlag) option() store.Option { return store.WithoutRoles(f.off()) }

// warn logs that database roles are off.
func (f rolesFlag) warn(log *slog.Logger) {
	if f.off() {
		log.Warn("database roles are off: all tenants' work is done as one database user, and " +
			"only asyncflow itself keeps them apart")
	}
}
