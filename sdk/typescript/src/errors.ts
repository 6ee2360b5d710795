import type { FieldError, Problem } from "./types.js";

/** The base of what this package throws of its own. */
export class AsyncflowError extends Error {
  override name = "AsyncflowError";

  /**
   * Whether a call that changes something may have had its effect although it failed. What
   * the server refused, or what never reached it, had none.
   */
  uncertain = false;

  constructor(
    /** A word for programs, such as invalid_argument or not_found; docs/errors.md has them all. */
    readonly code: string,
    message: string,
    /** The offending fields, each with what is wrong with it. */
    readonly fields: readonly FieldError[] = [],
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** What the caller gave can't be; nothing was sent. */
export function invalid(field: string, message: string): AsyncflowError {
  return new AsyncflowError("invalid_argument", `${field} ${message}`, [{ field, message }]);
}

/** An answer of the server that is not what was asked for. */
export class ProblemError extends AsyncflowError {
  override name = "ProblemError";

  constructor(
    /** Of HTTP. */
    readonly status: number,
    /** What the server says; made from the status if it says nothing. */
    readonly problem: Problem,
    /** When to try again, in milliseconds; 0 if the answer doesn't say. */
    readonly retryAfterMs = 0,
  ) {
    super(problem.code, `${status} ${problem.code}: ${detailOf(problem)}`, problem.errors ?? []);
    this.uncertain = problem.code === "uncertain" || (status >= 500 && status !== 503);
  }

  /** The id under which the server's log has the call; "" if the answer has none. */
  get requestId(): string {
    return this.problem.request_id ?? "";
  }
}

function detailOf(p: Problem): string {
  return p.detail || (p.errors ?? []).map((f) => `${f.field} ${f.message}`).join("; ") || p.title;
}

/** A call got no answer, or none that could be read. Its cause says why. */
export class ConnectionError extends AsyncflowError {
  override name = "ConnectionError";

  constructor(
    /** Of the server. */
    readonly url: string,
    cause: unknown,
  ) {
    super("unavailable", `no answer from ${url}: ${innermost(cause)}`, [], { cause });
    this.uncertain = !notSent.has(systemCode(cause));
  }
}

/** submitMany ended early: this is about the batch that follows the results. Its cause says why. */
export class SubmitManyError<Result = unknown> extends AsyncflowError {
  override name = "SubmitManyError";

  constructor(
    /** Of the tasks of the batches before, in their order. */
    readonly results: readonly Result[],
    cause: AsyncflowError,
  ) {
    super(cause.code, `after ${results.length} tasks: ${cause.message}`, cause.fields, { cause });
    this.uncertain = cause.uncertain;
  }
}

// With these there never was a connection.
const notSent = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

function systemCode(err: unknown): string {
  for (let e = err; e instanceof Error; e = e.cause) {
    if ("code" in e && typeof e.code === "string") return e.code;
  }
  return "";
}

// innermost drops the words that fetch puts around a cause.
function innermost(err: unknown): string {
  let e = err;
  while (e instanceof Error && e.cause instanceof Error) e = e.cause;
  return messageOf(e) || systemCode(e);
}

/** Returns what an error says, whatever was thrown. */
export function messageOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}
