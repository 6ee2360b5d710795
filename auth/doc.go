// Package auth verifies who is calling, for which tenant and with which scopes.
//
// A Verifier turns a bearer token (a signed JWT) into a Principal; an Issuer issues such tokens.
// There is a Config for each issuer; a Verifier may take several. They follow RFC 8725:
//
//   - Each Config allows one algorithm: HS256 for a secret, and EdDSA, ES256 or RS256 for public
//     keys. The Config or its key determines it, never the token.
//   - Issuer, audience, token type and expiry are always required and checked.
//   - The type determines the kind of a token: a tenant's or an operator's. A token of one kind is
//     never accepted as the other kind.
//   - With several issuers, the claim iss picks the rules, the keys and the algorithm that the
//     token is checked against; the rules of other issuers don't count.
//   - In a token's header, only kid chooses a key, and only among the configured keys. jwk, jku,
//     x5u and x5c are never read. A token with crit is refused.
//   - Claim names are exact: "Tenant" is not "tenant".
//
// # Key ids
//
// The id of a public key is the header kid of its PEM block, if there is one:
//
//	-----BEGIN PUBLIC KEY-----
//	kid: 2026-spring
//
//	MCowBQYDK2VwAyEA...
//	-----END PUBLIC KEY-----
//
// Otherwise it is the key's RFC 7638 thumbprint: the base64url of the SHA-256 of its JWK. With
// several keys, as during a rotation, every token must name its key. With one key, a token may
// leave kid out, but must not name another key. With a JWK Set it must always name its key. Secrets
// are without ids and kid is not read: a token is checked against each of them.
//
// # Rotation
//
// Keys and secrets in a file or at a URL are read again after Config.Interval, and when a token
// names an unknown key, but at most every second (a file) or every 10 s (a URL). When a key is
// gone, its tokens are refused, even tokens that were verified before. If the file or URL can't be
// read or used, nothing changes. Verifier.Change replaces the issuers themselves.
//
// The caller passes the time at which a token must be valid. Every error is an *asyncflow.Error, or
// wraps one.
package auth
