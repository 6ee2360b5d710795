import { problemOf, unbound } from "./call.js";
import { ConnectionError, invalid, ProblemError } from "./errors.js";
import { workerHeader, workerName } from "./name.js";
import { resultsAddress } from "./results.js";
import { AbortedError, returned, thrown, type Outcome } from "./outcome.js";
import { formatDuration, limit, pause, retryAfterOf } from "./time.js";
import type { ChildResults, HeartbeatResult } from "./types.js";

/**
 * Where to report on a delivery, and the token to do so. It may be stored as JSON and used by
 * another process. The token is a secret until the attempt is over.
 */
export interface Callback {
  url: string;
  token: string;
}

/** Options of a Reporter. */
export interface ReporterOptions {
  /** The function that sends reports. Default: the global fetch. */
  fetch?: typeof fetch;
  /** The first pause between two tries, in milliseconds. It doubles up to 30,000. Default 500. */
  retryMs?: number;
  /**
   * The name of the worker that reports, which is shown with its tasks: 1 to 64 printable ASCII
   * characters without spaces. Default: that of the Worker that uses the Reporter; else none.
   */
  name?: string;
}

const tryMs = 10_000; // of one try
const maxNote = 500; // characters
const longestPauseMs = 30_000; // the longest pause, whatever the server asks for

/** Reports on deliveries. */
export class Reporter {
  private readonly fetch: typeof fetch;
  private readonly retryMs: number;
  /** @internal The name of the worker that reports; undefined: none is sent. */
  name: string | undefined;

  constructor(options: ReporterOptions = {}) {
    this.fetch = unbound(options.fetch);
    this.retryMs = options.retryMs ?? 500;
    this.name = workerName(options.name ?? false);
  }

  /**
   * Reports that the stage is done, with an output; undefined or null: none. next and finish say
   * how the task goes on, and spawn which tasks it starts. It retries failures of the network, 429
   * and 5xx until there is another answer, or the signal is aborted.
   * @throws AbortedError lost if the attempt is over; ProblemError if the report was refused for
   * another reason
   */
  async complete(callback: Callback, output?: unknown, signal?: AbortSignal): Promise<void> {
    const o = returned(output);
    if (o.kind !== "done") throw invalid("output", o.error ?? "must be an output");
    return this.report(callback, o, signal);
  }

  /**
   * Reports that the attempt failed: for good if err is a Fail; otherwise it is retried, after a
   * pause if err is a Retry, and not counted if err is a Snooze. It is sent like complete.
   */
  async fail(callback: Callback, err: unknown, signal?: AbortSignal): Promise<void> {
    return this.report(callback, thrown(err), signal);
  }

  /** Sends an outcome until it is recorded. */
  async report(callback: Callback, o: Outcome, signal?: AbortSignal): Promise<void> {
    const [verb, body] = reportOf(o);
    await this.retried(callback, () => this.post(callback, verb, body, signal), signal);
  }

  /**
   * Reads a page of results that are too long for a context, from an index on. It is sent like
   * complete, to where reports go.
   */
  async results(
    callback: Callback,
    resultsURL: string,
    from = 0,
    signal?: AbortSignal,
  ): Promise<ChildResults> {
    const url = resultsAddress(callback.url, resultsURL, from);
    const send = () => this.send("GET", url, callback, undefined, signal);
    return JSON.parse(await this.retried(callback, send, signal)) as ChildResults;
  }

  /**
   * Reads a document that was too long for its delivery, by the end of its URL: input, or outputs/
   * and a stage. It is sent like complete.
   */
  async document(callback: Callback, path: string, signal?: AbortSignal): Promise<unknown> {
    const url = `${callback.url.replace(/\/$/, "")}/${path}`;
    const send = () => this.send("GET", url, callback, undefined, signal);
    return JSON.parse(await this.retried(callback, send, signal));
  }

  // retried sends until there is an answer that stays, and returns it.
  private async retried(
    callback: Callback,
    send: () => Promise<{ response: Response; text: string }>,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    for (let wait = this.retryMs; ; wait = Math.min(2 * wait, longestPauseMs)) {
      let asked = 0;
      let last: unknown;
      try {
        const { response, text } = await send();
        if (response.ok) return text;
        last = refusal(response, text);
        if (response.status < 500 && response.status !== 429) throw last;
        asked = retryAfterOf(response.headers);
      } catch (err) {
        if (err === last) throw err;
        last = new ConnectionError(callback.url, err);
      }
      // Up to a half less, at random: workers that failed together must not come back together.
      const most = Math.min(Math.max(wait, asked), longestPauseMs);
      if (!(await pause(most * (1 - Math.random() / 2), signal))) throw last;
    }
  }

  /**
   * Postpones the attempt's deadline, and returns the new one. It is sent once.
   * @throws AbortedError cancelled if the task was cancelled; lost if the attempt is over for
   * another reason
   */
  async heartbeat(callback: Callback, signal?: AbortSignal): Promise<Date> {
    return this.beat(callback, undefined, signal);
  }

  /**
   * Leaves a value, as JSON, for the next attempt of the stage. It is a heartbeat.
   * @throws AsyncflowError that names checkpoint if the value is no JSON
   */
  async checkpoint(callback: Callback, value: unknown, signal?: AbortSignal): Promise<Date> {
    const doc = JSON.stringify(value) as string | undefined;
    if (doc === undefined) throw invalid("checkpoint", "is no JSON");
    return this.beat(callback, `{"checkpoint":${doc}}`, signal);
  }

  private async beat(
    callback: Callback,
    body: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Date> {
    const beat = JSON.parse(
      await this.once(callback, "heartbeat", body, signal),
    ) as HeartbeatResult;
    if (beat.status === "cancelled") throw new AbortedError("cancelled");
    return new Date(beat.deadline ?? NaN);
  }

  /** Gives a claimed task back: no attempt is counted. It is sent once. */
  async release(callback: Callback, signal?: AbortSignal): Promise<void> {
    const url = callback.url.replace("/v1/callbacks/", "/v1/claims/");
    await this.once({ ...callback, url }, "release", undefined, signal);
  }

  /**
   * Reports the progress of the work: 0 to 100, and a note. Both are shown with the running task.
   * It is sent once, and is not a heartbeat.
   * @throws AsyncflowError that names percent or note if it can't be sent
   */
  async progress(
    callback: Callback,
    percent: number,
    note = "",
    signal?: AbortSignal,
  ): Promise<void> {
    if (!Number.isInteger(percent) || percent < 0 || percent > 100)
      throw invalid("percent", `is ${percent}; it must be a whole number from 0 to 100`);
    if (Array.from(note).length > maxNote)
      throw invalid("note", `is longer than ${maxNote} characters`);
    await this.once(
      callback,
      "progress",
      JSON.stringify({ percent, ...(note ? { note } : {}) }),
      signal,
    );
  }

  private async once(
    callback: Callback,
    verb: string,
    body: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<string> {
    const { response, text } = await this.post(callback, verb, body, signal);
    if (!response.ok) throw refusal(response, text);
    return text;
  }

  private async post(
    callback: Callback,
    verb: string,
    body: string | undefined,
    signal: AbortSignal | undefined,
  ) {
    return this.send("POST", `${callback.url.replace(/\/$/, "")}/${verb}`, callback, body, signal);
  }

  // send makes a call and reads its answer. It follows no redirects: the token is for asyncflow
  // only.
  private async send(
    method: string,
    url: string,
    callback: Callback,
    body: string | undefined,
    signal: AbortSignal | undefined,
  ) {
    const within = limit(tryMs, signal);
    try {
      const headers = {
        Authorization: `Bearer ${callback.token}`,
        "Content-Type": "application/json",
        ...(this.name === undefined ? {} : { [workerHeader]: this.name }),
      };
      const response = await this.fetch(url, {
        method,
        headers,
        redirect: "manual",
        signal: within.signal,
        ...(body === undefined ? {} : { body }),
      });
      return { response, text: await response.text() };
    } finally {
      within.done();
    }
  }
}

/** The end of the URL to which an outcome is reported, and the body. */
function reportOf(o: Outcome): [string, string] {
  switch (o.kind) {
    case "done":
      return ["complete", completion(o)];
    case "snooze":
      return ["snooze", JSON.stringify({ error: o.error, ...retryAfter(o) })];
    default:
      return ["fail", failure(o)];
  }
}

function failure(o: Outcome): string {
  return JSON.stringify({ error: o.error, retryable: o.kind !== "fail", ...retryAfter(o) });
}

function completion(o: Outcome): string {
  const fields: string[] = [];
  if (o.output !== undefined) fields.push(`"output":${o.output}`);
  if (o.nextStage !== undefined) fields.push(`"next_stage":${JSON.stringify(o.nextStage)}`);
  if (o.finish) fields.push(`"finish":true`);
  if (o.spawn !== undefined) fields.push(`"spawn":${o.spawn}`);
  if (o.join !== undefined) fields.push(`"join":${o.join}`);
  return `{${fields.join(",")}}`;
}

function retryAfter(o: Outcome): { retry_after?: string } {
  return o.retryAfterMs && o.retryAfterMs > 0
    ? { retry_after: formatDuration(o.retryAfterMs) }
    : {};
}

/** The error that an answer means. */
function refusal(response: Response, text: string): AbortedError | ProblemError {
  const problem = problemOf(response, text);
  return [401, 404, 409, 410].includes(response.status)
    ? new AbortedError("lost", { cause: problem })
    : problem;
}
