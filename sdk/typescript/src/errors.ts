import type { FieldError, Problem } from "./types.js";

/** The base class of this package's errors. */
export class AsyncflowError extends Error {
  override name = "AsyncflowError";

  /**
   * Whether a call that changes something may have taken effect although it failed. It has not if
   * the server refused it or was unavailable, or the request never reached the server.
   */
  uncertain = false;

  constructor(
    /** A code for programs, such as invalid_argument or not_found; docs/errors.md lists them. */
    readonly code: string,
    message: string,
    /** The offending fields, each with its fault. */
    readonly fields: readonly FieldError[] = [],
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** An argument is invalid. Nothing was sent. */
export function invalid(field: string, message: string): AsyncflowError {
  return new AsyncflowError("invalid_argument", `${field} ${message}`, [{ field, message }]);
}

/** An answer of the server that isn't a success. */
export class ProblemError extends AsyncflowError {
  override name = "ProblemError";

  constructor(
    /** The HTTP status. */
    readonly status: number,
    /** From the server, or made from the status if it sent none. */
    readonly problem: Problem,
    /** When to try again, in milliseconds; 0: unknown. */
    readonly retryAfterMs = 0,
  ) {
    super(problem.code, `${status} ${problem.code}: ${detailOf(problem)}`, problem.errors ?? []);
    this.uncertain = problem.code === "uncertain" || (status >= 500 && status !== 503);
  }

  /** The id that the server logs for the call; "" if the answer has none. */
  get requestId(): string {
    return this.problem.request_id ?? "";
  }
}

function detailOf(p: Problem): string {
  return p.detail || (p.errors ?? []).map((f) => `${f.field} ${f.message}`).join("; ") || p.title;
}

/** A call got no answer, or none that could be read. Its cause is the reason. */
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

/**
 * submitMany ended early. The error is about the batch after the results. Its cause is the reason.
 */
export class SubmitManyError<Result = unknown> extends AsyncflowError {
  override name = "SubmitManyError";

  constructor(
    /** The results of earlier batches, in the order of their tasks. */
    readonly results: readonly Result[],
    cause: AsyncflowError,
  ) {
    super(cause.code, `after ${results.length} tasks: ${cause.message}`, cause.fields, { cause });
    this.uncertain = cause.uncertain;
  }
}

// With these codes there never was a connection.
const notSent = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

function systemCode(err: unknown): string {
  for (let e = err; e instanceof Error; e = e.cause) {
    if ("code" in e && typeof e.code === "string") return e.code;
  }
  return "";
}

// innermost removes the words that fetch puts around a cause.
function innermost(err: unknown): string {
  let e = err;
  while (e instanceof Error && e.cause instanceof Error) e = e.cause;
  return messageOf(e) || systemCode(e);
}

/** Returns the text of whatever was thrown. */
export function messageOf(err: unknown): string {
  return err instanceof Error ? err.message : String(err);
}
