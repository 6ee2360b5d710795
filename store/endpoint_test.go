package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// endpointID returns the id of the n-th endpoint, secretID that of the n-th secret.
func endpointID(n int) string { return fmt.Sprintf("0190a6f0-0000-7000-8000-%012d", n) }
func secretID(n int) string   { return fmt.Sprintf("0190a6f0-0000-7000-9000-%012d", n) }

// sealedWith returns a value sealed with the key k. It begins with k, as the seals of package
// callbacks do.
func sealedWith(k byte, n int) []byte {
	return append(bytes.Repeat([]byte{k}, 12), fmt.Sprint(n)...)
}

// A lease is longer where a task may wait for others of its batch.
func TestLeaseOfABatch(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	for n, wait := range []time.Duration{time.Millisecond, 4 * time.Second, 0} {
		_, err := b.CreateEndpoint(t.Context(), tenant,
			asyncflow.Endpoint{ID: endpointID(n), Type: "pipe", Stage: "first",
				URL:            "https://x.example",
				Weight:         1,
				AllowDuplicate: true,
				Batch:          asyncflow.Batch{MaxTasks: 9, MaxWait: asyncflow.NewDuration(wait)}})
		require.NoError(t, err)
	}
	pipe, err := b.Catalog.Type(tenant, pipe.Name)
	require.NoError(t, err)
	b.submit(newTask(`1`))
	l := b.lease(pipe, 1)[0]
	require.Equal(t, time.Second+4*time.Second+store.LeaseMargin, l.Until.Sub(l.LeasedAt))
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	l = b.lease(pipe, 1)[0]
	require.Equal(t, time.Second+store.LeaseMargin, l.Until.Sub(l.LeasedAt),
		"no task waits in the next stage")
}

func TestEndpointIsKept(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	at := b.Clock.Now().Truncate(time.Microsecond)
	made := asyncflow.Endpoint{ID: endpointID(1), Type: "pipe", Stage: "first",
		URL: "https://x.example", Weight: 7, Outbound: []byte{0, 1, 2}, Challenged: true,
		Batch: asyncflow.Batch{MaxTasks: 50, MaxWait: asyncflow.NewDuration(20 * time.Millisecond)},
		Secrets: []asyncflow.SigningSecret{
			{ID: secretID(3), Kind: asyncflow.SecretEd25519,
				Sealed: bytes.Repeat([]byte{0xff}, 200), PublicKey: "whpk_x", CreatedAt: at},
			{ID: secretID(2), Kind: asyncflow.SecretHMAC, Sealed: []byte("b"), CreatedAt: at,
				ExpiresAt: at.Add(time.Hour)},
			{ID: secretID(1), Kind: asyncflow.SecretHMAC, Sealed: []byte("a"), CreatedAt: at,
				ExpiresAt: at.Add(time.Minute)}}}
	_, err := b.CreateEndpoint(t.Context(), tenant, made)
	require.NoError(t, err)
	same := func(want, got asyncflow.Endpoint) {
		t.Helper()
		require.WithinDuration(t, want.VerifiedAt, got.VerifiedAt, time.Millisecond)
		for _, e := range []*asyncflow.Endpoint{&want, &got} {
			e.CreatedAt, e.UpdatedAt, e.VerifiedAt = time.Time{}, time.Time{}, time.Time{}
			for i := range e.Secrets {
				e.Secrets[i].CreatedAt, e.Secrets[i].ExpiresAt = e.Secrets[i].CreatedAt.UTC(),
					e.Secrets[i].ExpiresAt.UTC()
			}
		}
		require.Equal(t, want, got)
	}
	read := func() asyncflow.Endpoint {
		e, err := b.Endpoint(t.Context(), tenant, made.ID)
		require.NoError(t, err)
		return e
	}
	same(made, read())
	pipe, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	same(made, pipe.Endpoints("first")[0])
	require.False(t, pipe.Serves("first"), "it has to prove whose it is")

	refused := errors.New("not this way")
	_, err = b.ChangeEndpoint(t.Context(), tenant, made.ID,
		func(e *asyncflow.Endpoint) error { e.Weight = 1; return refused })
	require.ErrorIs(t, err, refused)
	same(made, read())
	changed, err := b.ChangeEndpoint(t.Context(), tenant, made.ID,
		func(e *asyncflow.Endpoint) error {
			e.URL, e.Weight, e.Outbound, e.VerifiedAt, e.VerificationError = "https://y.example", 0,
				nil, at,
				"why"
			e.Batch = asyncflow.Batch{}
			e.Secrets = e.Secrets[:2]
			return nil
		})
	require.NoError(t, err)
	same(changed, read())
	require.Equal(t, "why", read().VerificationError)
	require.Len(t, read().Secrets, 2)
	require.False(t, read().UpdatedAt.Before(read().CreatedAt))
	pipe, err = b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	require.False(t, pipe.Serves("first"), "the weight is 0")
	_, err = b.ChangeEndpoint(t.Context(), tenant, made.ID,
		func(e *asyncflow.Endpoint) error { e.Weight = 1; return nil })
	require.NoError(t, err)
	pipe, err = b.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	require.True(t, pipe.Serves("first"))

	_, err = b.ChangeEndpoint(t.Context(), tenant, endpointID(9),
		func(*asyncflow.Endpoint) error { t.Error("there is none"); return nil })
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	require.NoError(t, b.DeleteEndpoint(t.Context(), tenant, made.ID))
	var left int
	require.NoError(t,
		b.db.QueryRow(t.Context(), `SELECT count(*) FROM tenant_acme.endpoint_secrets`).Scan(&left))
	require.Zero(t, left)
}

// Changes of one endpoint come one after the other: each sees the secrets that the previous
// change left.
func TestChangesOfAnEndpointAreSerial(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	_, err := b.CreateEndpoint(t.Context(), tenant,
		asyncflow.Endpoint{ID: endpointID(1), Type: "pipe", Stage: "first",
			URL:    "https://x.example",
			Weight: 1})
	require.NoError(t, err)
	var changes sync.WaitGroup
	for i := range 8 {
		changes.Go(func() {
			_, err := b.ChangeEndpoint(t.Context(), tenant, endpointID(1),
				func(e *asyncflow.Endpoint) error {
					e.Secrets = append(e.Secrets, asyncflow.SigningSecret{ID: secretID(i),
						Kind: asyncflow.SecretHMAC, Sealed: []byte("s"), CreatedAt: b.Clock.Now()})
					e.Weight++
					return nil
				})
			assert.NoError(t, err)
		})
	}
	waitAll(t, &changes)
	e, err := b.Endpoint(t.Context(), tenant, endpointID(1))
	require.NoError(t, err)
	require.Len(t, e.Secrets, 8)
	require.Equal(t, 9, e.Weight)
}

// Every value sealed by another key is sealed again, also while secrets are rotated. A value
// that can't be sealed doesn't affect the rest.
func TestReseal(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	n := longform.Size(110, 230) // more than one call takes
	outbound, sealed := (n+1)/3, n/3
	for i := range n {
		e := asyncflow.Endpoint{ID: endpointID(i), Type: "pipe", Stage: "first",
			URL:    "https://x.example",
			Weight: 1, AllowDuplicate: true,
			Secrets: []asyncflow.SigningSecret{{ID: secretID(i), Kind: asyncflow.SecretHMAC,
				Sealed: sealedWith('o', i), CreatedAt: b.Clock.Now()}}}
		switch i % 3 {
		case 1:
			e.Outbound = sealedWith('o', i)
		case 2:
			e.Secrets[0].Sealed = sealedWith('n', i)
		}
		_, err := b.CreateEndpoint(t.Context(), tenant, e)
		require.NoError(t, err)
	}
	key := bytes.Repeat([]byte{'n'}, 12)
	count := func() (int, int) {
		all, others, err := b.Seals(t.Context(), tenant, key)
		require.NoError(t, err)
		return all, others
	}
	all, others := count()
	require.Equal(t, n+outbound, all)
	require.Equal(t, n-sealed+outbound, others)

	again := func(e *asyncflow.Endpoint) error {
		if e.ID == endpointID(4) {
			return errors.New("can't be opened")
		}
		renew := func(sealed []byte) []byte { return append(bytes.Clone(key), sealed[12:]...) }
		for i := range e.Secrets {
			e.Secrets[i].Sealed = renew(e.Secrets[i].Sealed)
		}
		if e.Outbound != nil {
			e.Outbound = renew(e.Outbound)
		}
		return nil
	}
	var rotating sync.WaitGroup
	rotating.Go(func() {
		for i := range n {
			_, err := b.ChangeEndpoint(t.Context(), tenant, endpointID(i),
				func(e *asyncflow.Endpoint) error {
					return e.Rotate(asyncflow.SigningSecret{ID: secretID(1000 + i),
						Kind: asyncflow.SecretHMAC, Sealed: sealedWith('n', 1000+i),
						CreatedAt: b.Clock.Now()}, time.Hour, b.Clock.Now())
				})
			assert.NoError(t, err)
		}
	})
	done, failures, last := 0, 0, ""
	for {
		next, m, err := b.Reseal(t.Context(), tenant, last, key, again)
		done += m
		if err != nil {
			require.EqualError(t, err, "can't be opened")
			failures++
		}
		if next == "" {
			break
		}
		require.Greater(t, next, last)
		last = next
	}
	waitAll(t, &rotating)
	require.Equal(t, n-sealed-1, done)
	require.Equal(t, 1, failures)
	all, others = count()
	require.Equal(t, 2*n+outbound, all)
	require.Equal(t, 2, others, "the secret and the settings of the one that can't be opened")
	e, err := b.Endpoint(t.Context(), tenant, endpointID(7))
	require.NoError(t, err)
	require.Equal(t, [][]byte{sealedWith('n', 1007), sealedWith('n', 7)},
		[][]byte{e.Secrets[0].Sealed, e.Secrets[1].Sealed})
	require.Equal(t, sealedWith('n', 7), e.Outbound)
}

func TestForgetSecrets(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	now := b.Clock.Now()
	_, err := b.CreateEndpoint(t.Context(), tenant,
		asyncflow.Endpoint{ID: endpointID(1), Type: "pipe", Stage: "first",
			URL:    "https://x.example",
			Weight: 1,
			Secrets: []asyncflow.SigningSecret{
				{ID: secretID(3), Kind: asyncflow.SecretHMAC, Sealed: []byte("c"), CreatedAt: now},
				{ID: secretID(2), Kind: asyncflow.SecretHMAC, Sealed: []byte("b"), CreatedAt: now,
					ExpiresAt: now.Add(time.Hour)},
				{ID: secretID(1), Kind: asyncflow.SecretHMAC, Sealed: []byte("a"), CreatedAt: now,
					ExpiresAt: now.Add(-time.Second)}}})
	require.NoError(t, err)
	due, err := b.DryRunForgetSecrets(t.Context(), tenant)
	require.NoError(t, err)
	n, err := b.ForgetSecrets(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{due, n})
	e, err := b.Endpoint(t.Context(), tenant, endpointID(1))
	require.NoError(t, err)
	require.Len(t, e.Secrets, 2)
}

// Alerts keep the verification of their URL, and drop it with another URL.
func TestPutAlertsAndProof(t *testing.T) {
	b := setup(t)
	put := func(url string) asyncflow.Endpoint {
		a, err := b.PutAlerts(t.Context(), tenant,
			store.Alerts{Endpoint: asyncflow.Endpoint{ID: endpointID(1), URL: url, Challenged: true,
				Secrets: []asyncflow.SigningSecret{{ID: secretID(1), Kind: asyncflow.SecretHMAC,
					Sealed: []byte("s"), CreatedAt: b.Clock.Now()}}}})
		require.NoError(t, err)
		return a.Endpoint
	}
	e := put("https://x.example")
	require.False(t, e.Proven())
	require.Equal(t, 1, e.Weight)
	_, err := b.ChangeEndpoint(t.Context(), tenant, e.ID,
		func(e *asyncflow.Endpoint) error { e.Judge(e.URL, "", b.Clock.Now(), true); return nil })
	require.NoError(t, err)
	require.True(t, put("https://x.example").Proven())
	require.False(t, put("https://y.example").Proven())
	require.Len(t, put("https://y.example").Secrets, 1)
}

// A weight is checked by the task type that counts in the end: one that is being changed meanwhile
// is waited for.
func TestWeightBesideAChangeOfTheType(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	_, err := b.CreateEndpoint(t.Context(), tenant,
		asyncflow.Endpoint{ID: endpointID(1), Type: "pipe", Stage: "first",
			URL: asyncflow.ListenURL})
	require.NoError(t, err)
	hold, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer hold.Rollback(t.Context())
	_, err = hold.Exec(t.Context(), `SELECT FROM asyncflow.tenants WHERE slug = $1 FOR UPDATE`,
		tenant)
	require.NoError(t, err)
	waiting := func(n int) {
		t.Helper()
		eventually(t, "they wait for locks", func() bool {
			return b.count(`SELECT count(*) FROM `+pgtest.Activity()+`
				WHERE wait_event_type = 'Lock' AND datname = current_database()`) == n
		})
	}
	put, weighed := make(chan error, 1), make(chan error, 1)
	go func() {
		limited := twoStages()
		limited.MaxInFlight = 1
		_, _, err := b.PutTaskType(t.Context(), tenant, limited)
		put <- err
	}()
	waiting(1) // it found no endpoint with a weight
	go func() {
		_, err := b.ChangeEndpoint(t.Context(), tenant, endpointID(1),
			func(e *asyncflow.Endpoint) error { e.Weight = 1; return nil })
		weighed <- err
	}()
	waiting(2)
	require.NoError(t, hold.Commit(t.Context()))
	require.NoError(t, receive(t, put))
	require.ErrorContains(t, receive(t, weighed), "can't be combined with a stage of mode claim")
	e, err := b.Endpoint(t.Context(), tenant, endpointID(1))
	require.NoError(t, err)
	require.Zero(t, e.Weight)
}
