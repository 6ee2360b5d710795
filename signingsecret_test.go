package asyncflow_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func ids(secrets []asyncflow.SigningSecret) (all []string) {
	for _, s := range secrets {
		all = append(all, s.ID)
	}
	return all
}

func TestRotate(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) time.Time { return now.Add(d) }
	e := asyncflow.Endpoint{Secrets: []asyncflow.SigningSecret{{ID: "a"}}}
	require.Zero(t, e.OldSecretSignsUntil(now))
	require.NoError(t, e.Rotate(asyncflow.SigningSecret{ID: "b"}, 24*time.Hour, now))
	require.Equal(t, []string{"b", "a"}, ids(e.ActiveSecrets(at(24*time.Hour-1))))
	require.Equal(t, []string{"b"}, ids(e.ActiveSecrets(at(24*time.Hour))),
		"from its end on it doesn't sign")
	require.Equal(t, at(24*time.Hour), e.OldSecretSignsUntil(now))
	require.Zero(t, e.OldSecretSignsUntil(at(24*time.Hour)))

	require.NoError(t, e.Rotate(asyncflow.SigningSecret{ID: "c"}, time.Hour, now))
	require.Equal(t, []string{"c", "b", "a"}, ids(e.Secrets))
	require.Equal(t, at(time.Hour), e.Secrets[2].ExpiresAt,
		"a shorter overlap holds for all that are older")
	err := e.Rotate(asyncflow.SigningSecret{ID: "d"}, time.Hour, now)
	requireRefusal(t, err, asyncflow.CodeConflict,
		"the endpoint has 3 secrets that sign; wait until one has ended, or rotate with the "+
			"overlap 0s")
	require.Equal(t, []string{"c", "b", "a"}, ids(e.Secrets), "nothing has changed")
	later := e
	require.NoError(t, later.Rotate(asyncflow.SigningSecret{ID: "d"}, time.Hour, at(time.Hour)))
	require.Equal(t, []string{"d", "c"}, ids(later.Secrets), "what has ended is left out")

	require.NoError(t, e.Rotate(asyncflow.SigningSecret{ID: "e"}, 0, now))
	require.Equal(t, []string{"e"}, ids(e.Secrets), "without an overlap only the new one signs")
}

// A longer overlap gives no secret more time than is left to it.
func TestRotateNeverProlongs(t *testing.T) {
	t.Parallel()
	e := asyncflow.Endpoint{Secrets: []asyncflow.SigningSecret{{ID: "b"},
		{ID: "a", ExpiresAt: now.Add(time.Hour)}}}
	require.NoError(t, e.Rotate(asyncflow.SigningSecret{ID: "c"}, 24*time.Hour, now))
	require.Equal(t, now.Add(time.Hour), e.Secrets[2].ExpiresAt)
	require.Equal(t, now.Add(24*time.Hour), e.Secrets[1].ExpiresAt)
}

func TestRotateOverlap(t *testing.T) {
	t.Parallel()
	for _, overlap := range []time.Duration{-1, asyncflow.MaxOverlap + 1} {
		t.Run(overlap.String(), func(t *testing.T) {
			e := asyncflow.Endpoint{}
			err := e.Rotate(asyncflow.SigningSecret{}, overlap, now)
			requireRefusal(t, err, asyncflow.CodeInvalid,
				"overlap is "+overlap.String()+"; it must be 0s to 720h0m0s (30 days)")
		})
	}
}
