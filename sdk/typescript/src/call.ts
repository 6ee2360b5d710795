import { AsyncflowError, ConnectionError, invalid, messageOf, ProblemError } from "./errors.js";
import { limit, pause, retryAfterOf } from "./time.js";
import type { Problem } from "./types.js";

/** Options of a Client. */
export interface ClientOptions {
  /**
   * Bounds each call, in milliseconds: connecting, retries, and reading the whole answer. Default
   * 30,000; Infinity: no bound.
   */
  timeoutMs?: number;
  /** How often a call is retried that reads, or submits tasks with keys. Default 3. */
  retries?: number;
  /** The function that sends requests, such as one with TLS settings. Default: the global fetch. */
  fetch?: typeof fetch;
}

/** Options of one call. */
export interface CallOptions {
  /** When it is aborted, the call ends and rejects with its reason. */
  signal?: AbortSignal | undefined;
}

/** Options of a call that changes something configured, such as a task type. */
export interface ChangeOptions extends CallOptions {
  /**
   * Change it only if it has this ETag, or exists if the ETag is "*". Otherwise the call rejects
   * with a ProblemError, precondition_failed. See etagOf.
   */
  ifMatch?: string | undefined;
  /** Only create it: if it exists, the call rejects with precondition_failed. Excludes ifMatch. */
  ifNew?: boolean | undefined;
}

/** Returns the headers that a change's options ask for. */
export function conditions({ ifMatch, ifNew }: ChangeOptions): Record<string, string> {
  return {
    ...(ifMatch !== undefined && { "If-Match": ifMatch }),
    ...(ifNew && { "If-None-Match": "*" }),
  };
}

const etags = new WeakMap<object, string>();

/**
 * Returns the ETag of a task, task type or endpoint as a method of Client has returned it, to
 * change it only as long as nobody else does. Items of lists have none.
 */
export function etagOf(read: object): string | undefined {
  return etags.get(read);
}

/**
 * Keeps the ETag of an answer. A proxy that compresses answers makes it weak, and a weak one never
 * matches; the server's own are all strong.
 */
function keepETag(response: Response, answer: unknown): void {
  const etag = response.headers.get("ETag")?.replace(/^W\//, "");
  if (etag && typeof answer === "object" && answer !== null) etags.set(answer, etag);
}

/** One call. */
export interface Call extends CallOptions {
  query?: Record<string, string | undefined>;
  /** JSON. */
  body?: string | undefined;
  /** A retry does no harm: the call reads, or all its tasks have keys. */
  repeatable?: boolean;
  /** How long the server was asked to wait, in milliseconds. */
  extraMs?: number;
  headers?: Record<string, string>;
}

/** Returns a fetch to call as a method: some runtimes refuse a this that isn't theirs. */
export function unbound(given: typeof fetch | undefined): typeof fetch {
  const send = given ?? globalThis.fetch;
  return (input, init) => send(input, init);
}

// Statuses of a node or a proxy with which the same request may succeed in a moment.
const passing = [429, 502, 503, 504];
const retryMinMs = 100;
const retryMaxMs = 2000;
// An answer that asks for a longer pause is returned: the caller knows better how to use that time.
const longestRetryAfterMs = 5000;

/** Calls one server. */
export class Caller {
  readonly url: string;
  private readonly timeoutMs: number;
  private readonly retries: number;
  private readonly fetch: typeof fetch;
  private readonly headers: Record<string, string>;

  constructor(url: string, token: string, options: ClientOptions) {
    this.url = checkURL(url);
    token = token.trim();
    if (/[^!-~]/.test(token))
      throw invalid("token", "has white space or other characters that no token has");
    this.timeoutMs = options.timeoutMs ?? 30_000;
    this.retries = options.retries ?? 3;
    this.fetch = unbound(options.fetch);
    this.headers = {
      Accept: "application/json, application/problem+json",
      "User-Agent": "asyncflow-typescript",
    };
    if (token !== "") this.headers["Authorization"] = `Bearer ${token}`;
  }

  /** Returns a whole list, page by page. */
  async pages<Row, List extends { data: Row[]; next_cursor?: string }>(
    path: string,
    params: Record<string, string>,
    options: CallOptions,
  ): Promise<Row[]> {
    const rows: Row[] = [];
    for (let query = params; ; ) {
      const page = await this.call<List>("GET", path, { ...options, query });
      for (const row of page.data) rows.push(row);
      if (!page.next_cursor) return rows;
      query = { ...params, cursor: page.next_cursor };
    }
  }

  /** Sends a request and reads its answer. Throws a ProblemError unless the answer is 2xx. */
  async call<T>(method: string, path: string, c: Call = {}): Promise<T> {
    const within = limit(this.timeoutMs + (c.extraMs ?? 0), c.signal);
    try {
      return await this.tries<T>(method, path, c, within.signal);
    } finally {
      within.done();
    }
  }

  private async tries<T>(method: string, path: string, c: Call, signal: AbortSignal): Promise<T> {
    let uncertain = false;
    for (let n = 0; ; n++) {
      try {
        return await this.once<T>(method, path, c, signal);
      } catch (err) {
        if (!(err instanceof AsyncflowError)) throw err;
        uncertain ||= err.uncertain;
        err.uncertain = uncertain;
        const unsent = err instanceof ConnectionError && !uncertain;
        const repeatable = (c.repeatable ?? method === "GET") || unsent;
        const wait = repeatable && n < this.retries ? pauseBefore(err, n) : undefined;
        if (wait === undefined || !(await pause(wait, signal)))
          throw c.signal?.aborted ? c.signal.reason : err;
      }
    }
  }

  private async once<T>(method: string, path: string, c: Call, signal: AbortSignal): Promise<T> {
    const response = await this.send(method, path, c, signal);
    let text: string;
    try {
      text = await response.text();
    } catch (err) {
      throw this.noAnswer(err, c);
    }
    if (!response.ok) throw problemOf(response, text);
    if (response.status === 204) return undefined as T;
    try {
      const answer = JSON.parse(text) as T;
      keepETag(response, answer);
      return answer;
    } catch (err) {
      throw new ConnectionError(
        this.url,
        new Error(`its answer can't be read; is it an asyncflow server? ${messageOf(err)}`),
      );
    }
  }

  /** Sends a request once. It follows no redirects: the token is for one server only. */
  async send(method: string, path: string, c: Call, signal: AbortSignal): Promise<Response> {
    const url = new URL(this.url + path);
    for (const [name, value] of Object.entries(c.query ?? {})) {
      if (value) url.searchParams.set(name, value);
    }
    const headers: Record<string, string> = { ...this.headers, ...c.headers };
    if (c.body !== undefined) headers["Content-Type"] = "application/json";
    try {
      return await this.fetch(url, {
        method,
        headers,
        redirect: "manual",
        signal,
        ...(c.body === undefined ? {} : { body: c.body }),
      });
    } catch (err) {
      throw this.noAnswer(err, c);
    }
  }

  /**
   * Returns the reason for a missing answer: the caller's own signal, the connection, or the
   * timeout.
   */
  noAnswer(err: unknown, c: CallOptions): unknown {
    return c.signal?.aborted ? c.signal.reason : new ConnectionError(this.url, err);
  }
}

/** Returns the pause before the n-th retry; undefined: don't retry. */
function pauseBefore(err: AsyncflowError, n: number): number | undefined {
  const asked = err instanceof ProblemError ? err.retryAfterMs : 0;
  const worth =
    err instanceof ConnectionError ||
    (err instanceof ProblemError && passing.includes(err.status) && asked <= longestRetryAfterMs);
  return worth ? Math.max(asked, Math.min(retryMinMs * 2 ** n, retryMaxMs)) : undefined;
}

function checkURL(raw: string): string {
  let url: URL;
  try {
    url = new URL(raw.trim());
  } catch {
    throw invalid("url", `must be an absolute URL such as http://127.0.0.1:8080, not "${raw}"`);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:")
    throw invalid("url", "must be an http or https URL");
  if (url.username || url.password || url.search || url.hash)
    throw invalid("url", "must have no user, query or fragment");
  return url.href.replace(/\/+$/, "");
}

/** Returns a part of a path, escaped. */
export function pathPart(field: string, value: string): string {
  if (value === "") throw invalid(field, "is required");
  if (value === "." || value === "..") throw invalid(field, `must not be "${value}"`);
  return encodeURIComponent(value);
}

/**
 * Returns the error of an answer. If the answer isn't a problem document, the error quotes its
 * start.
 */
export function problemOf(r: Response, text: string): ProblemError {
  let said: Partial<Problem> = {};
  if (r.headers.get("Content-Type")?.includes("json")) {
    try {
      said = { ...(JSON.parse(text) as Partial<Problem>) };
    } catch {
      // missing fields are filled in below
    }
  }
  const problem: Problem = {
    ...said,
    type: said.type ?? "about:blank",
    title: said.title || r.statusText || `HTTP ${r.status}`,
    status: r.status,
    code: said.code || codeOf(r.status),
  };
  if (
    !problem.detail &&
    !problem.errors?.length &&
    r.headers.get("Content-Type")?.startsWith("text/plain")
  ) {
    problem.detail = text.slice(0, 200).replace(/\s+/g, " ").trim();
  }
  const id = said.request_id || r.headers.get("X-Request-Id");
  if (id) problem.request_id = id;
  return new ProblemError(r.status, problem, retryAfterOf(r.headers));
}

const codes: Record<number, Problem["code"]> = {
  401: "unauthenticated",
  403: "permission_denied",
  404: "not_found",
  409: "conflict",
  410: "decided",
  412: "precondition_failed",
  413: "too_large",
  429: "unavailable",
  502: "unavailable",
  503: "unavailable",
  504: "unavailable",
};

// codeOf returns a code for an answer without one, such as a proxy's.
function codeOf(status: number): Problem["code"] {
  return codes[status] ?? (status >= 300 && status < 500 ? "invalid_argument" : "internal");
}
