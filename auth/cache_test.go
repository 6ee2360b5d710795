package auth

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

func (c *cache) size() int {
	n := 0
	for i := range c.shards {
		c.shards[i].mu.RLock()
		n += len(c.shards[i].entries)
		c.shards[i].mu.RUnlock()
	}
	return n
}

func sumOf(n int) tokenSum {
	return sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

func TestCacheServesAVerifiedToken(t *testing.T) {
	t.Parallel()
	v := newVerifier(t, secretConfig())
	token := hs256(t, nil, nil)
	first, err := v.Verify(context.Background(), token, testNow)
	require.NoError(t, err)
	require.Equal(t, 1, v.trust.Load().cache.size())
	ring := &v.trust.Load().issuers[0].ring
	// a hit needs no secret
	ring.Store(&keyring{method: jwt.SigningMethodHS256, print: ring.Load().print})
	second, err := v.Verify(context.Background(), token, testNow)
	require.NoError(t, err)
	require.Equal(t, first, second)
	_, err = v.Verify(context.Background(), token[:len(token)-1], testNow)
	requireRefused(t, err, "the token")
}

// At every time, a Verifier with a cached token answers like a new one.
func TestCacheNeverOutlivesTheToken(t *testing.T) {
	t.Parallel()
	cfg := secretConfig()
	nbf, exp := testNow.Add(-time.Minute), testNow.Add(time.Minute)
	token := hs256(t, nil, fields{"nbf": nbf.Unix(), "exp": exp.Unix()})
	seen := newVerifier(t, cfg)
	_, err := seen.Verify(context.Background(), token, testNow)
	require.NoError(t, err)

	for _, now := range []time.Time{
		nbf.Add(-cfg.Leeway - 1), nbf.Add(-cfg.Leeway), nbf,
		exp.Add(-1), exp, exp.Add(cfg.Leeway - 1), exp.Add(cfg.Leeway), exp.Add(time.Hour),
	} {
		t.Run(fmt.Sprint(now.Sub(nbf), " after nbf"), func(t *testing.T) {
			_, wantErr := newVerifier(t, cfg).Verify(context.Background(), token, now)
			_, err := seen.Verify(context.Background(), token, now)
			require.Equal(t, wantErr == nil, err == nil, "cached %v, anew %v", err, wantErr)
			_, hit := seen.trust.Load().cache.get(sha256.Sum256([]byte(token)), now)
			require.False(t, hit && !now.Before(exp), "served from the cache at %v", now)
		})
	}
	_, err = seen.Verify(context.Background(), token, exp.Add(cfg.Leeway))
	requireRefused(t, err, "the token has expired")
}

func TestTokenInTheLeewayIsNotCached(t *testing.T) {
	t.Parallel()
	v := newVerifier(t, secretConfig())
	_, err := v.Verify(context.Background(), hs256(t, nil, fields{"exp": testNow.Unix()}), testNow)
	require.NoError(t, err)
	require.Zero(t, v.trust.Load().cache.size())
}

// secretEntry is an entry of an issuer with a secret; it is valid for an hour.
func secretEntry(t *testing.T) entry {
	issuer := newVerifier(t, secretConfig()).trust.Load().issuers[0]
	return entry{principal: Principal{Tenant: "acme", ExpiresAt: testNow.Add(time.Hour)},
		issuer: issuer, key: keyMark{thumbprint: issuer.ring.Load().print}}
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newCache(maxCached)
	e := secretEntry(t)
	for n := range 3 * maxCached {
		c.put(sumOf(n), e, testNow)
		_, ok := c.get(sumOf(n), testNow)
		require.True(t, ok, "the newest entry stays")
	}
	require.LessOrEqual(t, c.size(), maxCached)
	require.Greater(t, c.size(), maxCached*9/10)
}

// A shard that is full of expired entries evicts them before a valid one.
func TestCacheEvictsTheExpiredFirst(t *testing.T) {
	t.Parallel()
	for range 50 { // the sample starts at random
		s := &shard{max: sampleSize, entries: map[tokenSum]entry{}}
		for n := range sampleSize {
			expires := testNow.Add(time.Duration(n) * time.Hour)
			s.entries[sumOf(n)] = entry{principal: Principal{ExpiresAt: expires}}
		}
		s.evict()
		require.NotContains(t, s.entries, sumOf(0))
		require.Len(t, s.entries, sampleSize-1)
	}
}

// A token that two goroutines verify at once makes one entry.
func TestCachePutTwice(t *testing.T) {
	t.Parallel()
	c := newCache(2 * cacheShards)
	one, two := tokenSum{1: 1}, tokenSum{1: 2} // of one shard
	e := secretEntry(t)
	c.put(one, e, testNow)
	c.put(two, e, testNow)
	c.put(one, e, testNow)
	c.put(two, e, testNow)
	require.Equal(t, 2, c.size())
}

func TestVerifyConcurrently(t *testing.T) {
	t.Parallel()
	v := newVerifier(t, secretConfig())
	v.trust.Load().cache = newCache(cacheShards) // so small that every goroutine evicts
	tenants := []string{"acme", "beta", "gamma", "delta", "echo"}
	tokens := make([]string, 0, 100)
	for n := range 100 {
		tokens = append(tokens, hs256(t, nil,
			fields{"tenant": tenants[n%5], "jti": strconv.Itoa(n)}))
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 500 {
				i := (n*7 + g) % len(tokens)
				p, err := v.Verify(context.Background(), tokens[i], testNow)
				if err != nil || p.Tenant != tenants[i%5] {
					t.Errorf("token %d: %+v, %v", i, p, err)
					return
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, v.trust.Load().cache.size(), cacheShards)
}

func BenchmarkVerifyCached(b *testing.B) {
	v := newVerifier(b, secretConfig())
	token := hs256(b, nil, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(context.Background(), token, testNow); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyCachedParallel(b *testing.B) {
	v := newVerifier(b, secretConfig())
	token := hs256(b, nil, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := v.Verify(context.Background(), token, testNow); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkVerifyAnew(b *testing.B) {
	v := newVerifier(b, secretConfig())
	token := hs256(b, nil, nil)
	sum := sha256.Sum256([]byte(token))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.trust.Load().verifyNew(context.Background(), token, sum,
			testNow); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCachePutFull(b *testing.B) {
	c := newCache(maxCached)
	e := entry{principal: Principal{ExpiresAt: testNow.Add(time.Hour)},
		issuer: newVerifier(b, secretConfig()).trust.Load().issuers[0]}
	for n := range 2 * maxCached {
		c.put(sumOf(n), e, testNow)
	}
	n := 2 * maxCached
	b.ReportAllocs()
	for b.Loop() {
		n++
		c.put(sumOf(n), e, testNow)
	}
}
