package console

import (
	"net/netip"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func loginNumber(n int) pendingLogin {
	return pendingLogin{State: strconv.Itoa(n), Until: time.Now().Add(loginTime)}
}

// addressNumber returns an address for each pair of logins.
func addressNumber(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, byte(n / maxExchangesEach)})
}

// fill takes all slots and returns what gives them back.
func (e *exchanges) fill(t *testing.T) (ends []func()) {
	t.Helper()
	for n := range maxExchanges {
		end, err := e.begin(t.Context(), loginNumber(n), addressNumber(n))
		require.NoError(t, err)
		ends = append(ends, end)
	}
	return ends
}

// A login waits for a slot.
func TestOIDCLoginWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExchanges(time.Now, 10*time.Second)
		ends := e.fill(t)
		began := make(chan error, 1)
		go func() {
			end, err := e.begin(t.Context(), loginNumber(100), addressNumber(100))
			if err == nil {
				end()
			}
			began <- err
		}()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		assert.Empty(t, began, "it waits")
		for _, end := range ends {
			end()
		}
		require.NoError(t, <-began)
		assert.Empty(t, e.from)
		assert.Empty(t, e.slots)
	})
}

// A login that gets no slot in time is refused, and may be tried again.
func TestOIDCLoginThatGetsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExchanges(time.Now, 10*time.Second)
		ends := e.fill(t)
		late, started := loginNumber(100), time.Now()
		_, err := e.begin(t.Context(), late, addressNumber(100))
		assert.Equal(t, asyncflow.CodeRateLimited, asyncflow.CodeOf(err))
		assert.ErrorContains(t, err, "the limit of this node is 16 logins")
		assert.Equal(t, 10*time.Second, time.Since(started))
		ends[0]()
		_, err = e.begin(t.Context(), late, addressNumber(100))
		require.NoError(t, err)
	})
}

// A node remembers the last 4,096 used logins, until their cookies expire.
func TestOIDCUsedLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExchanges(time.Now, 10*time.Second)
		use := func(n int) error {
			end, err := e.begin(t.Context(), loginNumber(n), addressNumber(0))
			if err != nil {
				return err
			}
			end()
			return nil
		}
		for n := range maxUsedLogins {
			require.NoError(t, use(n))
		}
		for _, n := range []int{0, maxUsedLogins - 1} {
			assert.ErrorIs(t, use(n), errUnknownLogin)
		}
		require.NoError(t, use(maxUsedLogins))
		assert.Len(t, e.used, maxUsedLogins)
		require.ErrorIs(t, use(1), errUnknownLogin)
		require.NoError(t, use(0), "the oldest is forgotten")
		time.Sleep(loginTime)
		require.NoError(t, use(maxUsedLogins+1))
		assert.Len(t, e.used, 1)
	})
}

// An address over its limit is refused at once, and the login stays unused.
func TestOIDCShareOfAnAddress(t *testing.T) {
	t.Parallel()
	e := newExchanges(time.Now, 10*time.Second)
	for n := range maxExchangesEach {
		_, err := e.begin(t.Context(), loginNumber(n), addressNumber(0))
		require.NoError(t, err)
	}
	_, err := e.begin(t.Context(), loginNumber(9), addressNumber(0))
	assert.ErrorContains(t, err, "the limit of your address is 2 logins")
	_, err = e.begin(t.Context(), loginNumber(9), addressNumber(9))
	require.NoError(t, err)
}
