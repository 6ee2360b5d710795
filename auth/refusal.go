package auth

import (
	"errors"
	"fmt"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/golang-jwt/jwt/v5"
)

const (
	noToken   = "no token: send Authorization: Bearer <token>"
	malformed = "the token is malformed: it is not a signed JWT"
)

// refuse returns a CodeUnauthenticated error. Its message tells the caller which rule was broken,
// and quotes nothing of a token.
func refuse(format string, args ...any) error {
	return asyncflow.Errorf(asyncflow.CodeUnauthenticated, format, args...)
}

// refusal turns an error of the parser into plain words. token and c are what the parser had read;
// token may be nil. It returns an error of our own unchanged.
func (t *trusted) refusal(err error, token *jwt.Token, c *claims) error {
	var own *asyncflow.Error
	if errors.As(err, &own) {
		return own
	}
	message := ""
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		message = malformed
	case token == nil || token.Method == nil || token.Method.Alg() != t.method.Alg():
		message = "the token's algorithm is not " + t.method.Alg()
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		message = "the token's signature doesn't verify"
	default:
		message = t.claimsRefusal(err, c)
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnauthenticated, Op: "auth.Verify", Message: message,
		Err: err}
}

// claimsRefusal names the first rule that correctly signed claims break.
func (t *trusted) claimsRefusal(err error, c *claims) string {
	switch {
	case c.ExpiresAt == nil:
		return "the token has no expiry: the claim exp is required"
	case errors.Is(err, jwt.ErrTokenExpired):
		return "the token has expired at " + c.ExpiresAt.UTC().Format(time.RFC3339)
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return "the token is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	case c.Issuer != t.issuer:
		return fmt.Sprintf("the token's issuer is not %q", t.issuer)
	case errors.Is(err, jwt.ErrTokenInvalidAudience), errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return fmt.Sprintf("the token's audience is not %q", t.audience)
	default:
		return "the token's claims are not valid"
	}
}
