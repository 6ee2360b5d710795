import { AsyncflowError, invalid } from "./errors.js";

type Key = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** The id and the time of a verified request. */
export interface SignedRequest {
  /** A repeated request has the same id. */
  id: string;
  /** When it was signed, by the signer's clock, in milliseconds and whole seconds. */
  at: number;
}

const secretPrefix = "whsec_";
const publicPrefix = "whpk_";
const toleranceMs = 5 * 60_000;
// Checking a signature takes time, and the sender isn't authenticated yet.
const maxSignatures = 16;
const maxId = 256;

/** Reports whether a key is a secret that both sides share. */
export function isSecret(key: string): boolean {
  return key.startsWith(secretPrefix);
}

/** Verifies requests by Standard Webhooks, with any of its keys. */
export class Verifier {
  private readonly known = new Set<string>();
  private readonly keys: { scheme: "v1" | "v1a"; key: Promise<Key> }[] = [];

  /** The first secret of the keys. */
  get secret(): string | undefined {
    return [...this.known].find(isSecret);
  }

  /** Adds a key: whsec_ or whpk_, and base64. */
  add(key: string): void {
    if (typeof key !== "string") throw invalid("keys", "has one that is no text");
    if (this.known.has(key)) return;
    this.import(key);
    this.known.add(key);
  }

  private import(key: string): void {
    if (key === "")
      throw invalid("keys", "has an empty key; it must be whsec_ or whpk_, and base64");
    if (key.startsWith("whsk_"))
      throw invalid(
        "keys",
        "has a private key, which only asyncflow should have; a worker has the public one, whpk_…",
      );
    if (key.startsWith(publicPrefix)) {
      const raw = bytesOf(key.slice(publicPrefix.length));
      if (raw?.length !== 32) throw invalid("keys", "must be whpk_ and the base64 of 32 bytes");
      this.keys.push({
        scheme: "v1a",
        key: crypto.subtle.importKey("raw", raw, "Ed25519", false, ["verify"]),
      });
      return;
    }
    if (!isSecret(key)) throw invalid("keys", "must start with whsec_ or whpk_");
    const raw = bytesOf(key.slice(secretPrefix.length));
    if (!raw) throw invalid("keys", "must be whsec_ and base64");
    if (raw.length < 24 || raw.length > 64)
      throw invalid("keys", `has a secret of ${raw.length} bytes; it must be 24 to 64`);
    this.keys.push({
      scheme: "v1",
      key: crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, [
        "verify",
      ]),
    });
  }

  /**
   * @throws AsyncflowError unauthenticated, unless one signature is by one of the keys, and not
   * older than 5 minutes
   */
  async verify(headers: Headers, body: Uint8Array, now: number): Promise<SignedRequest> {
    const id = headers.get("Webhook-Id") ?? "";
    const sent = headers.get("Webhook-Timestamp") ?? "";
    const signatures = (headers.get("Webhook-Signature") ?? "").split(" ").filter((s) => s !== "");
    if (!id || !sent || signatures.length === 0) {
      throw refuse(
        "the request is not signed: it needs Webhook-Id, Webhook-Timestamp and Webhook-Signature",
      );
    }
    if (id.length > maxId) throw refuse("its Webhook-Id is too long");
    if (signatures.length > maxSignatures) throw refuse("it has too many signatures");
    if (!/^\d{1,12}$/.test(sent)) throw refuse("its Webhook-Timestamp is no number of seconds");
    const at = Number(sent) * 1000;
    if (Math.abs(now - at) > toleranceMs)
      throw refuse(
        "its Webhook-Timestamp is more than 5m from now: it is old, or a clock is wrong",
      );
    const signed = concat(new TextEncoder().encode(`${id}.${sent}.`), body);
    for (const { scheme, key } of this.keys) {
      for (const given of signatures) {
        const signature = given.startsWith(`${scheme},`)
          ? bytesOf(given.slice(scheme.length + 1))
          : undefined;
        if (
          signature &&
          (await crypto.subtle.verify(
            scheme === "v1" ? "HMAC" : "Ed25519",
            await key,
            signature,
            signed,
          ))
        )
          return { id, at };
      }
    }
    throw refuse("no signature of it verifies");
  }
}

function refuse(why: string): AsyncflowError {
  return new AsyncflowError("unauthenticated", why);
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** Returns the bytes of several pieces in one. */
export function concat(...parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return all;
}
