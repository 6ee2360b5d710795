package auth

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/asyncflow/asyncflow"
)

// Claimed returns the claims of a token without verifying it: anybody can write them. Use it only
// for the audit of denied calls. Claims that can't be parsed are left out.
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
	return asyncflow.AuditClaim{
		Issuer:  text("iss"),
		Subject: text("sub"),
		Tenant:  text("tenant"),
		TokenID: text("jti"),
	}
}
