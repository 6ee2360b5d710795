// Package auth answers who is calling, for which tenant and with which scopes.
//
// A Verifier turns a bearer token (a signed JWT) into a Principal; an Issuer
// makes such tokens. Each issuer has a Config; a Verifier may have several. They
// follow RFC 8725:
//
//   - One algorithm per Config, told by it or its key and never by the token:
//     HS256 for a secret, and EdDSA, ES256 or RS256 for public keys.
//   - Issuer, audience, token type and expiry are always required and checked.
//   - The type tells the kind of a token: a tenant's or an operator's. None is taken
//     for one of the other kind.
//   - With several issuers the claim iss picks the rules, the keys and the algorithm
//     that the token is then held against; nothing of another issuer's counts.
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
// key a token may leave kid out, but must not name another; with a JWK Set it must
// name its key always. Secrets have no ids, and kid is not read: a token is held against
// each of them.
//
// # Rotation
//
// Keys and secrets that stand in a file or at a URL are read again: after Config.Interval,
// and when a token names a key that isn't known, though not more often than every second
// (a file) or 10 s (a URL). A token whose key is gone is refused from then on, also one that was
// verified before. What can't be read or used changes nothing. Verifier.Change replaces
// the issuers themselves.
//
// The caller passes the time that tokens are judged by. Every error is an
// *asyncflow.Error, or wraps one.
package auth
