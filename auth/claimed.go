package auth

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/asyncflow/asyncflow"
)

// Claimed returns what a token says of itself, whatever it is worth: nothing of it is
// verified, and anybody can write it. It is for the audit of calls that were denied, and
// for nothing else. What can't be read is left out.
func Claimed(token string) asyncflow.AuditClaim {
	parts := strings.Split(token, ".")
	if len(token) > MaxTokenBytes || len(parts) != 3 {
		return asyncflow.AuditClaim{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var doc map[string]any
	if err != nil || json.Unmarshal(payload, &doc) != nil {
		return asyncflow.AuditClaim{}
	}
	text := func(name string) string {
		claim, _ := doc[name].(string)
		return asyncflow.AuditText(claim, asyncflow.MaxAuditClaim)
	}
	return asyncflow.AuditClaim{Issuer: text("iss"), Subject: text("sub"), Tenant: text("tenant"), TokenID: text("jti")}
}
