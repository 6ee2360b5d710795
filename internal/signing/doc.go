// Package signing signs requests to workers and verifies them there, by Standard Webhooks: an HMAC
// (v1) or an ed25519 signature (v1a) over "id.timestamp.body". The node and the SDK for workers
// share it.
package signing
