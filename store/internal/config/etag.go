package config

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"

	"github.com/asyncflow/asyncflow"
)

// ETagOf returns a strong ETag of what was configured, without what changes by itself.
func ETagOf(config ...any) string {
	doc, _ := json.Marshal(config) // plain values
	sum := sha256.Sum256(doc)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// ETag changes with each version of the type. A pause doesn't change it.
func (t StoredType) ETag() string { return ETagOf(t.Name, t.Version, t.CreatedAt.UnixMicro()) }

// EndpointETag changes with all that callers set of an endpoint, and with its secrets, but not with
// its health nor its verification.
func EndpointETag(e asyncflow.Endpoint) string {
	var secrets []string
	for _, secret := range e.Secrets {
		if secret.ExpiresAt.IsZero() { // the remaining ones go by themselves
			secrets = append(secrets, secret.ID)
		}
	}
	return ETagOf(e.ID, e.URL, e.Weight, hex.EncodeToString(e.Outbound), e.Limits.MaxInFlight,
		e.Limits.Rate.String(), e.Batch.MaxTasks, e.Batch.MaxWait, secrets)
}

// ETag changes with the quotas and the state of the tenant, not with its usage.
func (t StoredTenant) ETag() string {
	return ETagOf(t.Slug, t.Own, t.SuspendedAt.UnixMicro(), t.SuspendReason,
		t.DeletedAt.UnixMicro(), t.DropAt.UnixMicro(), t.DroppingAt.UnixMicro(),
		t.CreatedAt.UnixMicro())
}
