import { messageOf } from "./errors.js";

/** Thrown by a handler: the task has failed for good, because no other attempt could do better. */
export class Fail extends Error {
  override name = "Fail";
}

/** Thrown by a handler: the attempt has failed, and the next one must wait. */
export class Retry extends Error {
  override name = "Retry";

  constructor(
    message: string,
    /**
     * The pause before the next attempt. It can lengthen the retry policy's pause, but not shorten
     * it.
     */
    readonly afterMs: number,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

const leastSnoozeMs = 1000;
const mostSnoozeMs = 30 * 24 * 3600_000;

/**
 * Thrown by a handler: the task isn't ready yet. It is delivered again after a pause, and no
 * attempt is counted. The stage's max_snooze ends that.
 */
export class Snooze extends Error {
  override name = "Snooze";

  /** The pause: 1 s to 30 days. */
  readonly afterMs: number;

  constructor(afterMs: number, message = "it isn't ready yet", options?: ErrorOptions) {
    super(message, options);
    this.afterMs = Math.min(Math.max(afterMs, leastSnoozeMs), mostSnoozeMs);
  }
}

/** Returned by a handler: its stage is done, and the task goes on as next or finish says. */
export class Step<Out = unknown> {
  constructor(
    readonly output: Out | undefined,
    /** The next stage; undefined: the task is finished. */
    readonly nextStage?: string,
  ) {}
}

/**
 * The output of a handler, and the stage with which the task goes on, forwards or backwards. The
 * next of the handler's stage must allow it.
 */
export function next<Out = undefined>(stage: string, output?: Out): Step<Out> {
  return new Step(output, stage);
}

/** The output of a handler with which the task succeeds, if the next of its stage allows that. */
export function finish<Out = undefined>(output?: Out): Step<Out> {
  return new Step(output);
}

/** Returned by a handler: the work goes on elsewhere. Its end is reported by a Reporter. */
export const later = Symbol("asyncflow.later");

/**
 * Why the signal of a handler is aborted. cancelled: the task was cancelled; lost: the attempt is
 * over for another reason, and another one may be in flight; stopped: the worker is closing;
 * timeLimit: the handler's time limit has passed.
 */
export class AbortedError extends Error {
  override name = "AbortedError";

  constructor(
    readonly why: "cancelled" | "lost" | "stopped" | "timeLimit",
    options?: ErrorOptions,
  ) {
    super(reasons[why], options);
  }
}

const reasons = {
  cancelled: "the task was cancelled",
  lost: "the attempt is over",
  stopped: "the worker is stopping",
  timeLimit: "the handler's time limit is over",
};

/** The outcome of a delivery. */
export interface Outcome {
  kind: "done" | "retry" | "snooze" | "fail" | "accepted";
  /** JSON; undefined: none. */
  output?: string;
  error?: string;
  retryAfterMs?: number;
  /** The stage with which a done task goes on. */
  nextStage?: string;
  /** The task is finished. */
  finish?: true;
}

/**
 * Returns the outcome of a handler's return value. An output that isn't JSON fails the task for
 * good: another attempt would be no better.
 */
export function returned(value: unknown): Outcome {
  if (value === later) return { kind: "accepted" };
  if (value instanceof Step) {
    const o = returned(value.output);
    if (o.kind !== "done") return o;
    return value.nextStage === undefined
      ? { ...o, finish: true }
      : { ...o, nextStage: value.nextStage };
  }
  if (value === undefined || value === null) return { kind: "done" };
  try {
    const output = JSON.stringify(value) as string | undefined;
    if (output !== undefined)
      return output === "null" ? { kind: "done" } : { kind: "done", output };
    return { kind: "fail", error: `the output can't be written as JSON: it is a ${typeof value}` };
  } catch (err) {
    return {
      kind: "fail",
      error: shorten(`the output can't be written as JSON: ${messageOf(err)}`),
    };
  }
}

/**
 * Returns the outcome of an error that a handler has thrown. reason is why its signal was aborted,
 * if it was.
 */
export function thrown(err: unknown, reason?: unknown): Outcome {
  let text = messageOf(err);
  if (reason !== undefined && reason !== err) text += ` (${messageOf(reason)})`;
  const error = shorten(text) || "the handler failed without a word";
  if (caused(err, Fail)) return { kind: "fail", error };
  const snooze = caused(err, Snooze);
  if (snooze) return { kind: "snooze", error, retryAfterMs: snooze.afterMs };
  const retry = caused(err, Retry);
  return retry ? { kind: "retry", error, retryAfterMs: retry.afterMs } : { kind: "retry", error };
}

// caused returns the first error of a kind among an error and its causes.
function caused<E extends Error>(err: unknown, kind: new (...args: never[]) => E): E | undefined {
  for (let e = err; e instanceof Error; e = e.cause) {
    if (e instanceof kind) return e;
  }
  return undefined;
}

const maxError = 4096; // characters of an error that asyncflow stores

/** Returns the text of an error, cut to maxError characters. */
export function shorten(text: string): string {
  if (text.length <= maxError) return text;
  const characters = Array.from(text);
  return characters.length <= maxError ? text : characters.slice(0, maxError - 1).join("") + "…";
}
