import { messageOf } from "./errors.js";
import type { JoinOptions, SpawnedTask } from "./types.js";

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

/**
 * Returned by a handler: its stage is done, the task goes on as next or finish says, and starts the
 * tasks of spawn.
 */
export class Step<Out = unknown> {
  constructor(
    readonly output: Out | undefined,
    /** The next stage; false: the task is finished; undefined: as the type says. */
    readonly nextStage: string | false | undefined,
    /** The tasks to start. */
    readonly spawn: readonly SpawnedTask[] = [],
    /** How the task waits for them; undefined: it doesn't. */
    readonly joined?: JoinOptions | undefined,
  ) {}

  /**
   * Makes the task wait for the tasks that it starts. The next stage gets their results, as after a
   * fan-out, in place of the handler's output, which doesn't count.
   */
  join(options: JoinOptions = {}): Step<Out> {
    return new Step(this.output, this.nextStage, this.spawn, options);
  }
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
  return new Step(output, false);
}

/**
 * The output of a handler, or what next or finish returns, and tasks to start. They exist if the
 * outcome counts: all of them once, or none. The spawn of the stage must have their types.
 */
export function spawn<Out = undefined>(
  tasks: readonly SpawnedTask[],
  output?: Out | Step<Out>,
): Step<Out> {
  return output instanceof Step
    ? new Step(output.output, output.nextStage, [...output.spawn, ...tasks], output.joined)
    : new Step(output, undefined, tasks);
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
  /** The tasks that it starts, as JSON. */
  spawn?: string;
  /** How it waits for them, as JSON. */
  join?: string;
}

/**
 * Returns the outcome of a handler's return value. An output that isn't JSON fails the task for
 * good: another attempt would be no better.
 */
export function returned(value: unknown): Outcome {
  if (value === later) return { kind: "accepted" };
  if (value instanceof Step) {
    return step(value);
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

// step returns the outcome of a Step.
function step(s: Step): Outcome {
  const o = returned(s.output);
  if (o.kind !== "done") return o;
  if (s.nextStage === false) o.finish = true;
  else if (s.nextStage !== undefined) o.nextStage = s.nextStage;
  try {
    if (s.joined !== undefined) {
      delete o.output; // the results are in its place
      o.join = JSON.stringify(s.joined);
    }
    if (s.spawn.length > 0) o.spawn = JSON.stringify(s.spawn);
    return o;
  } catch (err) {
    return {
      kind: "fail",
      error: shorten(`the tasks to start can't be written as JSON: ${messageOf(err)}`),
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
