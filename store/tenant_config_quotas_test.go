package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// limit gives the tenant a quota, and waits until the nodes know it.
func limit(t *testing.T, name asyncflow.QuotaName, value float64, nodes ...*bundle) {
	t.Helper()
	_, err := nodes[0].PatchTenant(
		t.Context(),
		tenant,
		store.TenantPatch{Quotas: map[asyncflow.QuotaName]float64{name: value}},
	)
	require.NoError(t, err)
	for _, n := range nodes {
		require.NoError(t, n.Catalog.RefreshTenant(t.Context(), tenant))
	}
}

// atOnce does n things at once on several nodes, and returns how many succeeded. All others must be
// refusals by the quota, or with code.
func atOnce(t *testing.T, n int, code asyncflow.Code, do func(i int) error) (done int) {
	t.Helper()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- do(i) }()
	}
	for range n {
		err := receive(t, errs)
		if err == nil {
			done++
			continue
		}
		require.Equal(t, code, asyncflow.CodeOf(err), "%v", err)
	}
	return done
}

func anEndpoint(url string) asyncflow.Endpoint {
	return asyncflow.Endpoint{
		ID:     uuid.Must(uuid.NewV7()).String(),
		Type:   "pipe",
		Stage:  "first",
		URL:    url,
		Weight: 1,
	}
}

func aSchedule(name string, context string) asyncflow.Schedule {
	return asyncflow.Schedule{
		Name:    name,
		Type:    "pipe",
		Context: []byte(context),
		Cron:    "@hourly",
	}.WithDefaults()
}

func TestQuotasOfTheConfigurationAreExact(t *testing.T) {
	near := setup(t)
	near.put(twoStages())
	nodes := []*bundle{near, open(t, near.url, "node-2")}
	const most = 5
	for _, c := range []struct {
		quota asyncflow.QuotaName
		have  int
		make  func(b *bundle, i int) error
	}{
		{asyncflow.QuotaEndpoints, 0, func(b *bundle, i int) error {
			_, err := b.CreateEndpoint(t.Context(), tenant,
				anEndpoint(fmt.Sprintf("https://w%d.example.com/", i)))
			return err
		}},
		{asyncflow.QuotaSchedules, 0, func(b *bundle, i int) error {
			_, _, err := b.PutSchedule(t.Context(), tenant, aSchedule(fmt.Sprintf("s%d", i), `{}`))
			return err
		}},
		{asyncflow.QuotaTaskTypes, 1, func(b *bundle, i int) error {
			pipe := twoStages()
			pipe.Name = fmt.Sprintf("pipe%d", i)
			_, _, err := b.PutTaskType(t.Context(), tenant, pipe)
			return err
		}},
	} {
		limit(t, c.quota, most, nodes...)
		done := atOnce(t, 12, asyncflow.CodeQuota, func(i int) error {
			return c.make(nodes[i%2], i)
		})
		require.Equal(t, most-c.have, done, c.quota)
		err := c.make(near, 99)
		var known *asyncflow.Error
		require.ErrorAs(t, err, &known)
		require.Equal(t, &asyncflow.QuotaUse{Name: c.quota, Limit: most, Used: most}, known.Quota)
		used, err := near.TenantUsage(t.Context(), tenant)
		require.NoError(t, err)
		require.EqualValues(t, most, used[c.quota])
	}
}

func TestTheBytesOfAConfigurationAreBounded(t *testing.T) {
	near := setup(t)
	near.put(twoStages())
	far := open(t, near.url, "node-2")
	used, err := near.TenantUsage(t.Context(), tenant)
	require.NoError(t, err)
	before := used[asyncflow.QuotaConfigurationBytes]
	const kib = 1 << 10
	limit(t, asyncflow.QuotaConfigurationBytes, before+100*kib, near, far)
	large := func(url string) asyncflow.Endpoint {
		e := anEndpoint(url)
		e.Outbound = make([]byte, 20*kib)
		return e
	}
	nodes := []*bundle{near, far}
	done := atOnce(t, 10, asyncflow.CodeQuota, func(i int) error {
		_, err := nodes[i%2].CreateEndpoint(
			t.Context(),
			tenant,
			large(fmt.Sprintf("https://w%d.example.com/", i)),
		)
		return err
	})
	require.Equal(t, 4, done, "the fifth has 20 KiB, and its URL")

	_, _, err = near.PutSchedule(
		t.Context(),
		tenant,
		aSchedule("big", `"`+strings.Repeat("x", 30*kib)+`"`),
	)
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err))
	_, _, err = near.PutSchedule(t.Context(), tenant, aSchedule("small", `{}`))
	require.NoError(t, err)
	_, _, err = near.PutSchedule(
		t.Context(),
		tenant,
		aSchedule("small", `"`+strings.Repeat("x", 30*kib)+`"`),
	)
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err), "one that grows")
	all, err := near.Endpoints(t.Context(), tenant, "")
	require.NoError(t, err)
	_, err = near.ChangeEndpoint(t.Context(), tenant, all[0].ID, func(e *asyncflow.Endpoint) error {
		e.Outbound = make([]byte, 50*kib)
		return nil
	})
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err), "one that grows")
	wide := twoStages()
	for i := range 40 {
		wide.Stages = append(
			wide.Stages,
			asyncflow.Stage{Name: fmt.Sprintf("stage-%d-%s", i, strings.Repeat("x", 25)),
				Retry: asyncflow.RetryPolicy{MaxAttempts: 3, Interval: asyncflow.Seconds(1)}},
		)
	}
	wide.Name = "wide"
	for i := range 20 {
		wide.Name = fmt.Sprintf("wide%d", i)
		if _, _, err = near.PutTaskType(t.Context(), tenant, wide.WithDefaults()); err != nil {
			break
		}
	}
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err), "types count")

	// Configuration over a lowered quota stays, and may shrink.
	limit(t, asyncflow.QuotaConfigurationBytes, 10, near, far)
	_, err = near.ChangeEndpoint(t.Context(), tenant, all[0].ID, func(e *asyncflow.Endpoint) error {
		e.Weight, e.Outbound = 7, nil
		return nil
	})
	require.NoError(t, err)
}

func TestDefaultQuotasApply(t *testing.T) {
	b := setup(t)
	known, ok := b.Catalog.Tenant(tenant)
	require.True(t, ok)
	require.Equal(t, asyncflow.DefaultQuotas, known.Quotas)
}

func TestAURLIsRegisteredOnce(t *testing.T) {
	near := setup(t)
	near.put(twoStages())
	nodes := []*bundle{near, open(t, near.url, "node-2")}
	same := []string{"https://w.example.com", "https://w.example.com/",
		"https://W.Example.com:443/"}
	require.Equal(t, 1, atOnce(t, 12, asyncflow.CodeConflict, func(i int) error {
		_, err := nodes[i%2].CreateEndpoint(t.Context(), tenant, anEndpoint(same[i%3]))
		return err
	}))
	all, err := near.Endpoints(t.Context(), tenant, "")
	require.NoError(t, err)
	require.Len(t, all, 1)
	_, err = near.CreateEndpoint(t.Context(), tenant, anEndpoint(same[0]))
	require.ErrorContains(t, err, all[0].ID, "it names the first")

	allowed := anEndpoint(same[0])
	allowed.AllowDuplicate = true
	_, err = near.CreateEndpoint(t.Context(), tenant, allowed)
	require.NoError(t, err)
	second := anEndpoint(same[0])
	second.Stage = "second"
	_, err = near.CreateEndpoint(t.Context(), tenant, second)
	require.NoError(t, err, "another stage")

	var moving []asyncflow.Endpoint
	for i := range 6 {
		e, err := near.CreateEndpoint(
			t.Context(),
			tenant,
			anEndpoint(fmt.Sprintf("https://w%d.example.com/", i)),
		)
		require.NoError(t, err)
		moving = append(moving, e)
	}
	require.Equal(t, 1, atOnce(t, 6, asyncflow.CodeConflict, func(i int) error {
		_, err := nodes[i%2].ChangeEndpoint(
			t.Context(),
			tenant,
			moving[i].ID,
			func(e *asyncflow.Endpoint) error {
				e.URL = "https://new.example.com/"
				return nil
			},
		)
		return err
	}))
	_, err = near.ChangeEndpoint(
		t.Context(),
		tenant,
		allowed.ID,
		func(e *asyncflow.Endpoint) error { e.Weight = 3; return nil },
	)
	require.NoError(t, err, "an endpoint with the same URL may change otherwise")
}
