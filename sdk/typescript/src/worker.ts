import { readEnvelope, readEvent, Refused, type Delivery } from "./delivery.js";
import { AsyncflowError, invalid, messageOf } from "./errors.js";
import { Exchange, Requests, type Answer } from "./exchange.js";
import {
  one,
  together,
  type BatchWork,
  type Handler,
  type HandlerOptions,
  type Work,
} from "./handler.js";
import { workerHeader, workerName } from "./name.js";
import { AbortedError } from "./outcome.js";
import { Reporter } from "./reporter.js";
import { Run, type LogLine } from "./run.js";
import { concat, Verifier, type SignedRequest } from "./signing.js";
import { pause } from "./time.js";
import type { FinalEvent } from "./types.js";

/** Options of a Worker. */
export interface WorkerOptions {
  /**
   * The keys that verify deliveries: the secrets of the endpoints (whsec_…) or their public keys
   * (whpk_…). A delivery needs to verify with one of them, so give the old and the new key while a
   * secret is rotated. It may be empty if register brings one, or if the worker only claims tasks.
   */
  keys: readonly string[];
  /**
   * The name of this worker, which is shown with the tasks that it works on: 1 to 64 printable
   * ASCII characters without spaces. Default: the name of the host, if the runtime tells it;
   * false: none.
   */
  name?: string | false;
  /** Gets a line for each delivery. Default: the console, as JSON. */
  log?: (line: LogLine) => void;
  /**
   * Bounds the deliveries that are worked on or not yet reported. Those beyond it are answered with
   * 503, which costs the task an attempt: so set the endpoint's max_in_flight to a lower value.
   * Default 1,000.
   */
  maxInFlight?: number;
  /** Bounds a request, in bytes. Default 8 MiB. */
  maxBodyBytes?: number;
  /**
   * How long the answer to a delivery waits for its handler, in milliseconds; after that the answer
   * is 202. It must be below the stage's timeout. Default 2,000; less than 0: the answer doesn't
   * wait. Infinity: the answer is never 202, and asyncflow gives up when the timeout passes.
   */
  answerWithinMs?: number;
  /**
   * The interval of heartbeats, in milliseconds. Default: a third of the time until the deadline,
   * at most 30 s.
   */
  heartbeatMs?: number;
  /** The reporter for results. Default: one with the global fetch. */
  reporter?: Reporter;
}

/** A request of any server. */
export interface Incoming {
  method: string;
  headers: Headers;
  body: AsyncIterable<Uint8Array> | null;
}

/** The work on a request: its answer, and a function to call when the answer was sent. */
export interface Receipt {
  answer: Promise<Answer>;
  /** false: the connection broke. */
  end(arrived: boolean): void;
}

const firstClaimMs = 15_000; // how long a claim stands at first
const closeGraceMs = 5000; // how long interrupted handlers have to end

/**
 * Passes deliveries to its handlers. fetch serves them in a fetch-style server, and nodeHandler in
 * a Node server. Close the worker after its server.
 */
export class Worker {
  /** The reporter that the worker itself uses. */
  readonly reporter: Reporter;
  /** The name that it sends; undefined: none. */
  readonly name: string | undefined;
  /** @internal */
  readonly verifier = new Verifier();
  /** @internal */
  readonly log: (line: LogLine) => void;
  private readonly maxInFlight: number;
  private readonly maxBodyBytes: number;
  private readonly answerWithinMs: number;
  private readonly heartbeatMs: number | undefined;
  private readonly handlers = new Map<string, Handler>();
  private readonly requests = new Requests();
  private readonly runs = new Set<Run>();
  private final: ((event: FinalEvent) => void | Promise<void>) | undefined;
  private telling = 0; // events that are being handled
  private closing = false;
  private idle: () => void = () => {};

  /** @throws AsyncflowError that names the option */
  constructor(options: WorkerOptions) {
    for (const key of options.keys) this.verifier.add(key);
    this.name = workerName(options.name);
    this.reporter = options.reporter ?? new Reporter();
    this.reporter.name ??= this.name;
    this.log = options.log ?? ((line) => console[line.level](JSON.stringify(line)));
    this.maxInFlight = atLeast("maxInFlight", options.maxInFlight ?? 1000, 1);
    this.maxBodyBytes = atLeast("maxBodyBytes", options.maxBodyBytes ?? 8 << 20, 1);
    this.answerWithinMs = options.answerWithinMs ?? 2000;
    this.heartbeatMs =
      options.heartbeatMs === undefined
        ? undefined
        : atLeast("heartbeatMs", options.heartbeatMs, 1);
  }

  /**
   * Registers a function for the deliveries of a stage. It gets each delivery separately, even if
   * they come in a batch.
   */
  handle<In = unknown, Out = unknown>(
    type: string,
    stage: string,
    work: Work<In, Out>,
    options: HandlerOptions<In> = {},
  ): this {
    return this.add(type, stage, one(work, options.parse), options);
  }

  /**
   * Registers a function for the deliveries of a stage that arrive together: up to the endpoint's
   * batch.max_tasks in a call, or one if the endpoint has no batches. The signal is aborted when no
   * task of the batch needs work any more.
   */
  handleBatch<In = unknown, Out = unknown>(
    type: string,
    stage: string,
    work: BatchWork<In, Out>,
    options: HandlerOptions<In> = {},
  ): this {
    return this.add(type, stage, together(work, options.parse), options);
  }

  /**
   * Sets the function that handles events of on_final. They come to the worker's URL like
   * deliveries, and are verified with the same keys: give the secret of on_final, or the key of its
   * target's endpoint, in keys. If it throws, the event comes again. An event may come again also
   * after it was handled, so do what follows from it once for each id.
   */
  handleFinal(handle: (event: FinalEvent) => void | Promise<void>): this {
    this.final = handle;
    return this;
  }

  private add<In>(
    type: string,
    stage: string,
    start: Handler["start"],
    options: HandlerOptions<In>,
  ): this {
    for (const [field, name] of [
      ["type", type],
      ["stage", stage],
    ] as const) {
      if (/^[a-z][a-z0-9_-]{0,39}$/.test(name)) continue;
      const form = "a lower-case letter, then lower-case letters, digits, - and _; 40 at most";
      throw invalid(field, `is "${name}"; it must be ${form}`);
    }
    const name = `${type}/${stage}`;
    if (this.handlers.has(name)) throw invalid("stage", `has a handler already: ${name}`);
    this.handlers.set(name, {
      start,
      answerWithinMs: options.answerWithinMs ?? this.answerWithinMs,
      timeLimitMs: options.timeLimitMs ?? Infinity,
    });
    return this;
  }

  /** @internal The stages that have handlers. */
  get stages(): { type: string; stage: string; answerWithinMs: number }[] {
    return [...this.handlers].map(([name, h]) => ({
      type: name.split("/")[0] ?? "",
      stage: name.split("/")[1] ?? "",
      answerWithinMs: h.answerWithinMs,
    }));
  }

  /** How many deliveries are worked on or not yet reported. */
  get inFlight(): number {
    return this.runs.size;
  }

  /**
   * Answers a delivery, a batch, or a challenge, under any path. A request that isn't signed by one
   * of the keys, less than five minutes ago, gets 401, and its body isn't parsed.
   */
  readonly fetch = async (request: Request): Promise<Response> => {
    const gone = new Promise<undefined>((resolve) =>
      request.signal.addEventListener("abort", () => resolve(undefined), { once: true }),
    );
    const receipt = await this.receive({
      method: request.method,
      headers: request.headers,
      body: request.body,
    });
    const answer = await Promise.race([receipt.answer, gone]);
    receipt.end(answer !== undefined && !request.signal.aborted);
    if (!answer) return new Response(null, { status: 503 }); // which nobody reads
    return new Response(answer.body || null, { status: answer.status, headers: headersOf(answer) });
  };

  /** @internal Takes a request of any server. */
  async receive(r: Incoming): Promise<Receipt> {
    const refused = (err: unknown): Receipt => {
      return { answer: Promise.resolve(this.refuse(err, r)), end: () => {} };
    };
    let request: [SignedRequest, Uint8Array];
    try {
      request = await this.verified(r);
    } catch (err) {
      return refused(err); // strangers don't learn the worker's name
    }
    try {
      return this.named(this.take(r, ...request));
    } catch (err) {
      return this.named(refused(err));
    }
  }

  // named adds the worker's name to the answer.
  private named(r: Receipt): Receipt {
    const { name } = this;
    if (name === undefined) return r;
    const answer = r.answer.then((a) => ({
      ...a,
      headers: { ...a.headers, [workerHeader]: name },
    }));
    return { ...r, answer };
  }

  private take(r: Incoming, signed: SignedRequest, body: Uint8Array): Receipt {
    const text = new TextDecoder().decode(body);
    const event = readEvent(text);
    if (event) return { answer: this.tell(event, r), end: () => {} };
    const envelope = readEnvelope(text);
    if ("challenge" in envelope) {
      return {
        answer: Promise.resolve({
          status: 200,
          body: JSON.stringify({ challenge: envelope.challenge }),
        }),
        end: () => {},
      };
    }
    const { type, stage } = envelope.deliveries[0];
    const handler = this.handlers.get(`${type}/${stage}`);
    if (!handler)
      throw new Refused(404, `this worker has no handler for the stage "${stage}" of "${type}"`);
    const known = this.requests.find(signed.id);
    if (known) {
      this.log({ level: "info", message: "the same request again", webhookId: signed.id });
      return { answer: Promise.resolve(known), end: () => {} };
    }
    // A batch that is larger than the whole capacity is admitted alone.
    const count = envelope.deliveries.length;
    if (this.closing || (this.runs.size > 0 && this.runs.size + count > this.maxInFlight))
      throw new Refused(503, "this worker has no room");
    const exchange = new Exchange(envelope.batch, (a) => this.requests.answered(signed.id, a));
    this.requests.begin(signed.id, exchange.answered);
    this.begin(exchange, handler, envelope.deliveries, clockOffset(signed));
    return { answer: exchange.answered, end: (arrived) => exchange.end(arrived) };
  }

  private async tell(event: FinalEvent, r: Incoming): Promise<Answer> {
    const refused = (status: number, why: string) => this.refuse(new Refused(status, why), r);
    if (!this.final)
      return refused(404, "this worker has no handler for events: see handleFinal");
    if (this.closing || this.telling >= this.maxInFlight)
      return refused(503, "this worker has no room");
    this.telling++;
    try {
      await this.final(event);
    } catch (err) {
      return refused(500, messageOf(err));
    } finally {
      this.telling--;
    }
    this.log({ level: "info", message: "event", webhookId: event.id, task: event.data.id });
    return { status: 204, body: "" };
  }

  private begin(x: Exchange, h: Handler, deliveries: Delivery[], offset: number): void {
    const options = {
      reporter: this.reporter,
      heartbeatMs: this.heartbeatMs,
      timeLimitMs: h.timeLimitMs,
      log: this.log,
      ended: (r: Run) => this.ended(r),
    };
    for (const d of deliveries) x.runs.push(new Run(d, x, options, offset));
    for (const r of x.runs) this.runs.add(r);
    const inTime = x.runs.filter((r) => r.inTime);
    if (h.answerWithinMs < 0) x.decide(false);
    for (const r of x.runs) {
      if (inTime.includes(r)) continue;
      r.abort(new AbortedError("lost"));
      void r.finish({ kind: "retry", error: "its deadline had passed when it came" });
    }
    h.start(inTime);
    x.wait(Math.max(0, h.answerWithinMs));
  }

  /** @internal */
  handles(type: string, stage: string): boolean {
    return this.handlers.has(`${type}/${stage}`);
  }

  /**
   * @internal Begins the work on a claimed task. There is no request to answer: the result is
   * reported. false: the worker is closing, or is full.
   */
  beginClaim(d: Delivery, over: (later: boolean) => void): boolean {
    const h = this.handlers.get(`${d.type}/${d.stage}`);
    if (!h || this.closing || this.runs.size >= this.maxInFlight) return false;
    const x = new Exchange(false, () => {});
    const ended = (r: Run) => {
      const later = r.result?.kind === "accepted"; // it goes on elsewhere
      // Nothing was heard of it yet.
      if (later) void this.reporter.heartbeat(d.callback).catch(() => {});
      this.ended(r);
      over(later);
    };
    const heartbeatMs =
      this.heartbeatMs === undefined ? undefined : Math.min(this.heartbeatMs, firstClaimMs / 3);
    const left = Date.parse(d.deadline) - Date.now();
    const offset = left > 0 ? 0 : firstClaimMs - left; // this clock is ahead
    const run = new Run(
      d,
      x,
      { reporter: this.reporter, heartbeatMs, timeLimitMs: h.timeLimitMs, log: this.log, ended },
      offset,
    );
    x.runs.push(run);
    this.runs.add(run);
    x.decide(true);
    x.end(true);
    h.start([run]);
    return true;
  }

  private ended(r: Run): void {
    this.runs.delete(r);
    if (this.runs.size === 0) this.idle();
  }

  private async verified(r: Incoming): Promise<[SignedRequest, Uint8Array]> {
    if (r.method !== "POST") throw new Refused(405, "deliveries are POSTed");
    const media = (r.headers.get("Content-Type") ?? "").split(";")[0]?.trim().toLowerCase();
    if (media !== "application/json") throw new Refused(415, "the body must be application/json");
    const tooLarge = new Refused(
      413,
      `the body is too large: the limit is ${this.maxBodyBytes} bytes`,
    );
    if (Number(r.headers.get("Content-Length")) > this.maxBodyBytes) throw tooLarge;
    const body = await readBody(r.body, this.maxBodyBytes, tooLarge);
    return [await this.verifier.verify(r.headers, body, Date.now()), body];
  }

  private refuse(err: unknown, r: Incoming): Answer {
    const status = err instanceof Refused ? err.status : err instanceof AsyncflowError ? 401 : 500;
    this.log({
      level: "warn",
      message: "delivery refused",
      status,
      error: messageOf(err),
      webhookId: r.headers.get("Webhook-Id"),
    });
    const headers: Record<number, Record<string, string>> = {
      405: { Allow: "POST" },
      413: { Connection: "close" },
      503: { "Retry-After": "1" },
    };
    return {
      status,
      body: JSON.stringify({ error: messageOf(err) }),
      headers: headers[status] ?? {},
    };
  }

  /**
   * Refuses new deliveries (503) and waits until those in flight are reported. After graceMs it
   * aborts the signals of their handlers. Handlers that end within 5 s report a failure, so that
   * their tasks are retried at once. It rejects if some were cut short.
   */
  async close(graceMs = 20_000): Promise<void> {
    this.closing = true;
    if (await this.isIdle(graceMs)) return;
    const cut = this.runs.size;
    for (const r of this.runs) r.abort(new AbortedError("stopped"));
    await this.isIdle(closeGraceMs);
    for (const r of this.runs) r.endCalls();
    throw new Error(`${cut} deliveries were cut short`);
  }

  // isIdle waits until nothing is in flight; false: it took longer.
  private async isIdle(mostMs: number): Promise<boolean> {
    if (this.runs.size === 0) return true;
    const enough = new AbortController();
    this.idle = () => enough.abort();
    await pause(mostMs, enough.signal);
    return this.runs.size === 0;
  }
}

function atLeast(field: string, value: number, least: number): number {
  if (!(value >= least)) throw invalid(field, `is ${value}; it must not be below ${least}`);
  return value;
}

/** @internal The headers of an answer. */
export function headersOf(a: Answer): Record<string, string> {
  return { ...a.headers, ...(a.body === "" ? {} : { "Content-Type": "application/json" }) };
}

async function readBody(
  body: AsyncIterable<Uint8Array> | null,
  most: number,
  tooLarge: Refused,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const part of body ?? []) {
      size += part.length;
      if (size > most) throw tooLarge;
      parts.push(part);
    }
  } catch (err) {
    throw err instanceof Refused ? err : new Refused(400, "the body broke off");
  }
  return concat(...parts);
}

// clockOffset returns how far this machine's clock is ahead of the database's clock, which
// deadlines use. It ignores up to 2 s: the time of a request has whole seconds, and the request
// takes a moment to arrive.
function clockOffset(signed: SignedRequest): number {
  const d = Date.now() - signed.at;
  return d < 0 || d > 2000 ? d : 0;
}
