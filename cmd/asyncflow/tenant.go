package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/node"
	"github.com/asyncflow/asyncflow/store"
)

// tenantsCmd groups the commands for tenants, which use the database directly.
type tenantsCmd struct {
	Create   tenantsCreateCmd   `cmd:"" help:"Create a tenant, unless it exists."`
	List     tenantsListCmd     `cmd:"" help:"List the tenants."`
	Get      tenantsGetCmd      `cmd:"" help:"Show a tenant, and what it uses of its quotas."`
	SetQuota tenantsSetQuotaCmd `cmd:"" help:"Set quotas of a tenant."`
	Suspend  tenantsSuspendCmd  `cmd:"" help:"Refuse a tenant's calls, and start none of its tasks."`
	Resume   tenantsResumeCmd   `cmd:"" help:"Let a suspended tenant continue."`
	Delete   tenantsDeleteCmd   `cmd:"" help:"Suspend a tenant, and drop it after a grace period."`
	Restore  tenantsRestoreCmd  `cmd:"" help:"Take the deletion of a tenant back."`

	Move      tenantsMoveCmd      `cmd:"" help:"Move a tenant to another worker of Citus."`
	Rebalance tenantsRebalanceCmd `cmd:"" help:"Fill the workers of Citus evenly with tenants."`

	GrantSubmit  tenantsGrantSubmitCmd  `cmd:"" help:"Let a database role submit tasks by SQL."`
	RevokeSubmit tenantsRevokeSubmitCmd `cmd:"" help:"Revoke that from a database role."`
}

func (c *tenantsCmd) Help() string {
	return `These commands use the database directly: they need no token, and work while no node
runs. Running nodes notice a change within about a second. Programs can do the same over HTTP
with an operator's token: see /v1/tenants.`
}

type tenantsCreateCmd struct {
	databaseFlag
	citusFlag
	Tenant string `arg:""`
}

// Run creates the tenant.
func (c *tenantsCreateCmd) Run(ctx context.Context, g *globals) error {
	created, err := createTenant(ctx, c.DatabaseURL, c.Tenant, c.option(),
		store.NotDistributed(c.citusFlag.off()))
	if err != nil {
		return err
	}
	if created {
		fmt.Fprintf(g.stdout,
			"tenant %s created; asyncflow token create --tenant %s makes a token for it\n",
			c.Tenant,
			c.Tenant)
	} else {
		fmt.Fprintf(g.stdout, "tenant %s exists already\n", c.Tenant)
	}
	return nil
}

// createTenant creates a tenant, unless it exists.
func createTenant(
	ctx context.Context, url, tenant string, how ...store.Option,
) (created bool, err error) {
	b := auditedCommand{url: url, action: "tenant.create", objectType: "tenant", object: tenant,
		detail: map[string]any{}}
	err = b.do(ctx, func() error {
		created, err = store.CreateTenant(ctx, url, tenant, how...)
		b.detail["created"] = created
		return err
	})
	return created, err
}

type tenantsListCmd struct {
	databaseFlag
	Trouble bool `help:"Only active tenants with alerts, due or failed tasks, the worst first."`
}

// tenantsPage is how many tenants are read at once.
const tenantsPage = 500

// Run lists the tenants.
func (c *tenantsListCmd) Run(ctx context.Context, g *globals) error {
	if c.Trouble {
		return c.listTroubled(ctx, g)
	}
	return withStore(ctx, c.databaseFlag, asyncflow.Quotas{}, func(s *store.Store) error {
		all := []api.Tenant{}
		rows := [][]string{}
		for after, more := "", true; more; {
			var page []store.StoredTenant
			var err error
			if page, more, err = s.TenantPage(ctx, after, tenantsPage); err != nil {
				return err
			}
			docs, err := httpapi.TenantsOut(ctx, s, page...)
			if err != nil {
				return err
			}
			for i, t := range page {
				after = t.Slug
				rows = append(rows, []string{t.Slug, string(t.State()), timeText(t.CreatedAt),
					timeText(t.DropAt), docs[i].Placement, t.SuspendReason})
			}
			all = append(all, docs...)
		}
		if g.output == "json" {
			return g.printJSON(asList(all, ""))
		}
		return g.printTable("TENANT STATE CREATED DROP PLACEMENT REASON", rows)
	})
}

// listTroubled lists the tenants with trouble, and what it is.
func (c *tenantsListCmd) listTroubled(ctx context.Context, g *globals) error {
	return withStore(ctx, c.databaseFlag, asyncflow.Quotas{}, func(s *store.Store) error {
		list, err := httpapi.TroubledTenants(ctx, s, tenantsPage)
		if err != nil {
			return err
		}
		if g.output == "json" {
			return g.printJSON(list)
		}
		rows := make([][]string, len(list.Data))
		for i, t := range list.Data {
			h := t.Health
			rows[i] = []string{t.Slug, strconv.Itoa(h.Alerts), strconv.FormatInt(h.Due, 10),
				timeText(h.OldestDue), strconv.FormatInt(h.FailedLastHour, 10)}
		}
		if err := g.printTable("TENANT ALERTS DUE OLDEST_DUE FAILED_LAST_HOUR", rows); err != nil {
			return err
		}
		if list.Unread > 0 {
			fmt.Fprintf(g.stderr, "The history of %d tenants can't be recorded: what is listed of "+
				"them is what was last known.\n", list.Unread)
		}
		return nil
	})
}

// tenantArg names a tenant.
type tenantArg struct {
	databaseFlag
	Tenant string `arg:"" help:"The tenant."`
}

// change changes the tenant, and shows it.
func (c *tenantArg) change(
	ctx context.Context, g *globals, do func(*store.Store) (store.StoredTenant, error),
) error {
	return withStore(ctx, c.databaseFlag, asyncflow.Quotas{}, func(s *store.Store) error {
		t, err := do(s)
		return g.printTenant(httpapi.TenantOut(t), err)
	})
}

// withStore opens the database for a command.
func withStore(
	ctx context.Context, db databaseFlag, defaults asyncflow.Quotas, do func(*store.Store) error,
) error {
	s, err := store.Open(ctx, store.Config{URL: db.DatabaseURL, Node: node.NewName(), Pool: 2,
		HotPool: 1, NoRoles: db.off(), DefaultQuotas: defaults})
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

type tenantsGetCmd struct {
	tenantArg     `embed:""`
	DefaultQuotas []string `env:"ASYNCFLOW_DEFAULT_QUOTAS" placeholder:"NAME=LIMIT"`
}

// Run shows the tenant.
func (c *tenantsGetCmd) Run(ctx context.Context, g *globals) error {
	defaults, err := defaultQuotas(c.DefaultQuotas)
	if err != nil {
		return usageError(err)
	}
	return withStore(ctx, c.databaseFlag, defaults, func(s *store.Store) error {
		t, err := s.Tenant(ctx, c.Tenant)
		if err != nil {
			return err
		}
		docs, err := httpapi.TenantsOut(ctx, s, t)
		if err != nil {
			return err
		}
		docs[0].Usage, err = httpapi.QuotaUsageOf(ctx, s, t)
		return g.printTenant(docs[0], err)
	})
}

// printTenant shows a tenant, and its quotas if they are known.
func (g *globals) printTenant(t api.Tenant, err error) error {
	if done, err := g.asDocument(t, err); done {
		return err
	}
	var own []string
	for _, name := range asyncflow.QuotaNames() {
		if value := t.Quotas.Get(name); value != 0 {
			own = append(own, string(name)+"="+amountText(value))
		}
	}
	err = g.printFields("tenant", t.Slug, "state", string(t.State), "reason", t.Reason, "suspended",
		timeText(t.SuspendedAt),
		"deleted", timeText(t.DeletedAt), "drop", timeText(t.DropAt), "placement", t.Placement, "own quotas",
		strings.Join(own, " "), "created", timeText(t.CreatedAt))
	if err != nil || t.Usage == nil {
		return err
	}
	rows := make([][]string, len(t.Usage))
	for i, u := range t.Usage {
		limit, used, whose := "none", "", "default"
		if u.Limit != 0 {
			limit = amountText(u.Limit)
		}
		if u.Used != nil {
			used = strconv.FormatFloat(*u.Used, 'f', -1, 64)
		}
		if u.Own {
			whose = "own"
		}
		rows[i] = []string{string(u.Name), limit, used, whose}
	}
	fmt.Fprintln(g.stdout)
	return g.printTable("QUOTA LIMIT USED WHOSE", rows)
}

func amountText(value float64) string {
	if value == asyncflow.NoLimit {
		return "none"
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}
