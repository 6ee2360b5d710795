package asyncflow

import (
	"slices"
	"time"
)

// SecretKind is the kind of a signing secret.
type SecretKind string

const (
	SecretHMAC    SecretKind = "hmac"    // HMAC-SHA-256 with a secret that both sides share: v1
	SecretEd25519 SecretKind = "ed25519" // a private key that only asyncflow holds: v1a
)

// SigningSecret is one of the secrets that sign deliveries to an endpoint.
type SigningSecret struct {
	ID        string // a UUID
	Kind      SecretKind
	Sealed    []byte // the secret itself (see callbacks.Keys)
	PublicKey string // of an ed25519 key, as workers take it: whpk_…
	CreatedAt time.Time
	ExpiresAt time.Time // it signs until this time; zero: until it is rotated out
}

// Bounds of signing secrets.
const (
	MaxSecrets     = 3 // that sign at the same time
	MaxOverlap     = 30 * 24 * time.Hour
	DefaultOverlap = 24 * time.Hour
)

// Active reports whether the secret signs at now.
func (s SigningSecret) Active(now time.Time) bool {
	return s.ExpiresAt.IsZero() || now.Before(s.ExpiresAt)
}

// ActiveSecrets returns the secrets that sign at now, the newest first.
func (e Endpoint) ActiveSecrets(now time.Time) []SigningSecret {
	return slices.DeleteFunc(slices.Clone(e.Secrets),
		func(s SigningSecret) bool { return !s.Active(now) })
}

// OldSecretSignsUntil returns until when an older secret signs beside the newest; zero if none
// does.
func (e Endpoint) OldSecretSignsUntil(now time.Time) (last time.Time) {
	for _, s := range e.ActiveSecrets(now) {
		if s.ExpiresAt.After(last) {
			last = s.ExpiresAt
		}
	}
	return last
}

// Rotate makes next the newest secret. The older ones go on signing for overlap, unless they
// expire earlier; expired ones are dropped.
func (e *Endpoint) Rotate(next SigningSecret, overlap time.Duration, now time.Time) error {
	if overlap < 0 || overlap > MaxOverlap {
		return InvalidField("overlap", "is %s; it must be 0s to %s (30 days)", overlap, MaxOverlap)
	}
	end := now.Add(overlap)
	secrets := []SigningSecret{next}
	for _, s := range e.Secrets {
		if s.ExpiresAt.IsZero() || s.ExpiresAt.After(end) {
			s.ExpiresAt = end
		}
		if s.Active(now) {
			secrets = append(secrets, s)
		}
	}
	if len(secrets) > MaxSecrets {
		return Errorf(CodeConflict,
			"the endpoint has %d secrets that sign; wait until one has ended, or rotate with the "+
				"overlap 0s",
			MaxSecrets)
	}
	e.Secrets = secrets
	return nil
}
