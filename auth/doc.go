// Package auth answers who is calling, for which tenant and with which scopes.
//
// A Verifier turns a bearer token (a signed JWT) into a Principal; an Issuer
// makes such tokens. Both are made from a Config and follow RFC 8725:
//
//   - One algorithm per Config, told by its key and never by the token:
//     HS256 for a secret, and EdDSA, ES256 or RS256 for public keys.
//   - Issuer, audience, token type and expiry are always required and checked.
//   - Nothing in a token's header chooses a key but kid, and kid only selects
//     among the configured keys; jwk, jku, x5u and x5c are never read, and a
//     token with crit is refused.
//   - Claim names are exact: "Tenant" is not "tenant".
//
// # Key ids
//
// The id of a public key is the kid header of its PEM block, if it has one:
//
//	-----BEGIN PUBLIC KEY-----
//	kid: 2026-spring
//
//	MCowBQYDK2VwAyEA...
//	-----END PUBLIC KEY-----
//
// else its RFC 7638 thumbprint: the base64url of the SHA-256 of its JWK. With
// several keys, as during a rotation, every token must name its key. With one
// key a token may leave kid out, but must not name another. A secret has no id,
// and kid is not read.
//
// The package does no input or output and reads no clock: the caller passes
// the time. Every error is an *asyncflow.Error.
package auth
