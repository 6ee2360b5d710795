import assert from "node:assert/strict";
import { createHmac, createPrivateKey, generateKeyPairSync, sign } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

import { Reporter, Worker, type LogLine, type WorkerOptions } from "asyncflow";
import { nodeHandler } from "asyncflow/node";

export const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/** Serves until the test is over, and returns the URL. */
export async function serve(
  t: TestContext,
  listener: (req: IncomingMessage, res: ServerResponse) => void,
): Promise<string> {
  const server: Server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A report that a worker has sent. */
export interface Report {
  verb: string;
  body: Record<string, unknown>;
  token: string;
  /** The name of the worker. */
  worker: string | undefined;
}

/** A worker on its own server, and asyncflow's side of the wire. */
export class Bench {
  /** The answers to reports, by kind. */
  readonly answers: Record<string, (path: string) => { status: number; body?: object }> = {};
  workerURL = "";
  callbackURL = "";
  private readonly reports: Report[] = [];
  private wake: () => void = () => {};
  private seq = 0;

  private constructor(
    readonly worker: Worker,
    readonly lines: LogLine[],
  ) {}

  static async start(
    t: TestContext,
    prepare: (w: Worker) => void,
    options: Partial<WorkerOptions> = {},
  ): Promise<Bench> {
    const lines: LogLine[] = [];
    const reporter = new Reporter({ retryMs: 1 });
    const worker = new Worker({
      keys: [secret],
      log: (line) => lines.push(line),
      heartbeatMs: 3_600_000,
      answerWithinMs: 30_000,
      reporter,
      ...options,
    });
    prepare(worker);
    const b = new Bench(worker, lines);
    b.workerURL = await serve(t, nodeHandler(worker));
    b.callbackURL = await serve(t, (req, res) => void b.take(req, res));
    return b;
  }

  private async take(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await textOf(req);
    const verb = req.url?.split("/").pop() ?? "";
    const { status, body: doc } = this.answers[verb]?.(req.url ?? "") ?? { status: 200 };
    const running = { status: "running", deadline: new Date(Date.now() + 60_000).toISOString() };
    if (status === 0)
      res.destroy(); // no answer
    else
      res
        .writeHead(status, { "Content-Type": "application/json" })
        .end(JSON.stringify(doc ?? running));
    this.reports.push({
      verb,
      body: body ? (JSON.parse(body) as Record<string, unknown>) : {},
      token: req.headers.authorization ?? "",
      worker: req.headers["asyncflow-worker"] as string | undefined,
    });
    this.wake();
  }

  /** Waits for the next report of a kind, and returns it. */
  async report(verb: string): Promise<Report> {
    for (;;) {
      const at = this.reports.findIndex((r) => r.verb === verb);
      const [found] = at < 0 ? [] : this.reports.splice(at, 1);
      if (found) return found;
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  /** Returns the number of reports of a kind that report() hasn't returned yet. */
  count(verb: string): number {
    return this.reports.filter((r) => r.verb === verb).length;
  }

  envelope(context: unknown = {}, change: object = {}): object {
    this.seq++;
    return {
      task_id: "images.1.42",
      type: "images",
      stage: "inspect",
      attempt: 2,
      max_attempts: 20,
      seq: this.seq,
      shard: 3,
      deadline: new Date(Date.now() + 60_000).toISOString(),
      context,
      callback: { url: `${this.callbackURL}/v1/callbacks/images.1.42`, token: "a-token" },
      ...change,
    };
  }

  /** Posts a signed envelope, and returns the answer with its body as JSON. */
  async deliver(
    context: unknown = {},
    change: object = {},
  ): Promise<{ status: number; body: unknown }> {
    return this.post(signed(this.envelope(context, change)));
  }

  async post(init: RequestInit): Promise<{ status: number; body: unknown }> {
    const response = await fetch(`${this.workerURL}/any/path`, init);
    const text = await response.text();
    return { status: response.status, body: text === "" ? undefined : JSON.parse(text) };
  }
}

let ids = 0;

/** Returns a signed request. */
export function signed(
  envelope: object | string,
  with_: { id?: string; at?: number; key?: string } = {},
): RequestInit & { headers: Record<string, string> } {
  const body = typeof envelope === "string" ? envelope : JSON.stringify(envelope);
  const id = with_.id ?? `msg.${++ids}`;
  const at = String(with_.at ?? Math.floor(Date.now() / 1000));
  const signature = signer(with_.key ?? secret)(`${id}.${at}.${body}`);
  return {
    method: "POST",
    body,
    headers: {
      "Content-Type": "application/json",
      "Webhook-Id": id,
      "Webhook-Timestamp": at,
      "Webhook-Signature": `v1,AAAA ${signature}`,
    },
  };
}

function signer(key: string): (text: string) => string {
  const raw = Buffer.from(key.replace(/^wh[a-z]+_/, ""), "base64");
  if (key.startsWith("whsec_"))
    return (text) => "v1," + createHmac("sha256", raw).update(text).digest("base64");
  const private_ = createPrivateKey({ key: raw, format: "der", type: "pkcs8" });
  return (text) => "v1a," + sign(null, Buffer.from(text), private_).toString("base64");
}

/** Makes an ed25519 pair: the private key, for signed, and the public key (whpk_). */
export function ed25519(): { key: string; publicKey: string } {
  const pair = generateKeyPairSync("ed25519");
  const raw = pair.publicKey.export({ format: "der", type: "spki" }).subarray(-32);
  return {
    key: "whsk_" + pair.privateKey.export({ format: "der", type: "pkcs8" }).toString("base64"),
    publicKey: "whpk_" + raw.toString("base64"),
  };
}

export async function textOf(req: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of req) parts.push(part as Buffer);
  return Buffer.concat(parts).toString();
}

/** Returns a promise and the function that resolves it. */
export function deferred<T = void>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => assert.fail();
  const promise = new Promise<T>((r) => (resolve = r));
  return { promise, resolve };
}

/** Resolves with the reason when a signal is aborted. */
export function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    signal.addEventListener("abort", () => resolve(signal.reason));
  });
}

/** Returns a port on which nothing listens, below the system's ephemeral ports. */
export async function freePort(): Promise<number> {
  for (;;) {
    const [server, port] = [createServer(), 10_000 + Math.floor(Math.random() * 20_000)];
    const free = await new Promise<boolean>((resolve) =>
      server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)),
    );
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}
