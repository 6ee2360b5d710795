import type { FanOut } from "./delivery.js";
import { messageOf } from "./errors.js";
import { AbortedError, Fail, later, returned, Step, thrown, type Outcome } from "./outcome.js";
import type { Callback } from "./reporter.js";
import type { Run } from "./run.js";
import type { ChildResult } from "./types.js";

/** A delivery, as a handler gets it. */
export interface WorkerTask<In> {
  /** The same in all stages and attempts. */
  readonly id: string;
  readonly type: string;
  /** The version of the task type; 0 in a test. */
  readonly typeVersion: number;
  readonly stage: string;
  /** Of this stage; 1 is the first. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** The fencing number: it grows with every delivery of the task. */
  readonly seq: number;
  /** When reports stop counting; heartbeats postpone it. */
  readonly deadline: Date;
  /** The task's context, or the latest output of an earlier stage. */
  readonly context: In;
  /** What an earlier attempt of the stage left with saveCheckpoint; undefined: nothing. */
  readonly checkpoint?: unknown;
  /**
   * The URLs by which somebody decides about a wait that may come next, by the names of the stage
   * and the decision: links["review"]?.["approve"]. Empty: none.
   */
  readonly links: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** For whom the task is done, as it was submitted. */
  readonly user?: string;
  /** The tags that the task was submitted with. Empty: none. */
  readonly tags: readonly string[];
  /** The metadata that the task was submitted with. Empty: none. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The W3C traceparent that the task was submitted with. */
  readonly trace?: string;
  /**
   * The W3C traceparent to go on from: that of this attempt, or trace if the attempt isn't
   * recorded.
   */
  readonly traceparent?: string;
  /** To report later. */
  readonly callback: Callback;
  /**
   * Returns the context as the task was submitted with it, if the stage asks for it: deliver.input.
   * One that was too long for the delivery is read from asyncflow.
   * @throws AbortedError lost if the attempt is over; AsyncflowError if the stage asks for none
   */
  input<T = unknown>(): Promise<T>;
  /** Returns the latest output of a stage, like input; null if there is none: deliver.outputs. */
  output<T = unknown>(stage: string): Promise<T | null>;
  /** If it is a child of another task. */
  readonly fanOut?: FanOut;
  /** A test delivery: it belongs to no task, and its result goes nowhere. */
  readonly test: boolean;
  /** Aborted when the result no longer counts; its reason is an AbortedError. */
  readonly signal: AbortSignal;
  /**
   * Reports the progress of the work: 0 to 100, and a note. It is sent once. A failure to send it
   * is only logged, because it is no reason to stop.
   * @throws AsyncflowError that names percent or note if it can't be sent
   */
  progress(percent: number, note?: string): Promise<void>;
  /**
   * Leaves a value, as JSON, for the next attempt of the stage, in place of what was left before.
   * It is a heartbeat, too. A failure to send it is only logged, because it is no reason to stop.
   * @throws AsyncflowError that names checkpoint if the value is no JSON
   */
  saveCheckpoint(value: unknown): Promise<void>;
  /**
   * Yields the outputs of all children, in the order of the items or shards: null for one without.
   * It reads long results a page at a time, as the loop goes on. It is for the stage after a
   * fan-out whose results are outputs, the default; see Joined.
   * @throws AbortedError lost if the attempt is over
   */
  outputs<Out = unknown>(): AsyncGenerator<Out | null, void>;
  /** Is outputs for a fan-out whose results are "settled": it yields how each child ended. */
  settled(): AsyncGenerator<ChildResult, void>;
}

/** Options for the deliveries of one handler. */
export interface HandlerOptions<In> {
  /**
   * Reads the context, such as the parse function of a schema. If it throws, the task fails for
   * good. Without it, nothing checks that the context has the handler's type.
   */
  parse?: (context: unknown) => In;
  /** Overrides WorkerOptions.answerWithinMs. */
  answerWithinMs?: number;
  /**
   * Aborts the handler's signal after this time, so that heartbeats don't keep a hanging handler
   * alive. By default there is no limit.
   */
  timeLimitMs?: number;
}

/**
 * Works on one task. Returns the output, nothing, later, or what next, finish or spawn returns.
 * Throws when the attempt has failed.
 */
export type Work<In, Out> = (
  task: WorkerTask<In>,
) => Out | Step<Out> | typeof later | Promise<Out | Step<Out> | typeof later>;

/** The result of one task of a batch. Without an error, the task is done. */
export type BatchResult<Out> = { output?: Out | Step<Out>; error?: unknown } | typeof later;

/**
 * Works on tasks together. The results are in the order of the tasks; a missing result is a
 * failure.
 */
export type BatchWork<In, Out> = (
  tasks: WorkerTask<In>[],
  signal: AbortSignal,
) => BatchResult<Out>[] | Promise<BatchResult<Out>[]>;

/** Works on the deliveries of a stage. */
export interface Handler {
  answerWithinMs: number;
  timeLimitMs: number;
  /** Starts work on the runs; each is finished later. */
  start(runs: Run[]): void;
}

/** Returns a start that works on each delivery separately. */
export function one<In, Out>(
  work: Work<In, Out>,
  parse?: (context: unknown) => In,
): Handler["start"] {
  const workOn = async (r: Run): Promise<Outcome> => {
    try {
      return returned(await work(taskOf(r, parse)));
    } catch (err) {
      return thrown(err, r.signal.reason);
    }
  };
  return (runs) => {
    for (const r of runs) void workOn(r).then((o) => r.finish(o));
  };
}

/** Returns a start that works on the deliveries of a request together. */
export function together<In, Out>(
  work: BatchWork<In, Out>,
  parse?: (context: unknown) => In,
): Handler["start"] {
  const workOn = async (runs: Run[]): Promise<void> => {
    const readable: Run[] = [];
    const tasks: WorkerTask<In>[] = [];
    for (const r of runs) {
      try {
        tasks.push(taskOf(r, parse));
        readable.push(r);
      } catch (err) {
        void r.finish(thrown(err));
      }
    }
    if (tasks.length === 0) return;
    const all = allAborted(readable);
    let outcomes: Outcome[];
    try {
      const results = await work(tasks, all);
      outcomes = tasks.map((_, i) => outcomeOf(results[i]));
    } catch (err) {
      outcomes = tasks.map(() => thrown(err, all.reason));
    }
    readable.forEach((r, i) => void r.finish(outcomes[i] as Outcome));
  };
  return (runs) => void workOn(runs);
}

function outcomeOf<Out>(result: BatchResult<Out> | undefined): Outcome {
  if (result === later) return returned(later);
  if (!result) return thrown(new Error("the handler returned no result for this task"));
  return result.error === undefined ? returned(result.output) : thrown(result.error);
}

/** Returns a signal that is aborted when the signals of all runs are. */
function allAborted(runs: Run[]): AbortSignal {
  const all = new AbortController();
  const check = () => {
    if (runs.every((r) => r.signal.aborted))
      all.abort(runs[0]?.signal.reason ?? new AbortedError("lost"));
  };
  for (const r of runs) r.signal.addEventListener("abort", check, { once: true });
  check();
  return all.signal;
}

function taskOf<In>(r: Run, parse?: (context: unknown) => In): WorkerTask<In> {
  const d = r.delivery;
  const traceparent = d.traceparent ?? d.trace;
  let context: In;
  try {
    context = parse ? parse(d.context) : (d.context as In);
  } catch (err) {
    throw new Fail(`the context can't be read: ${messageOf(err)}`, { cause: err });
  }
  return {
    id: d.task_id,
    type: d.type,
    typeVersion: d.type_version ?? 0,
    stage: d.stage,
    attempt: d.attempt,
    maxAttempts: d.max_attempts,
    seq: d.seq,
    deadline: new Date(d.deadline),
    context,
    ...(d.checkpoint !== undefined && { checkpoint: d.checkpoint }),
    links: d.links ?? {},
    ...(d.user !== undefined && { user: d.user }),
    tags: d.tags ?? [],
    metadata: d.metadata ?? {},
    ...(d.trace !== undefined && { trace: d.trace }),
    ...(traceparent !== undefined && { traceparent }),
    callback: d.callback,
    signal: r.signal,
    ...(d.fan_out && { fanOut: d.fan_out }),
    test: d.test === true,
    progress: (percent, note) => r.progress(percent, note),
    saveCheckpoint: (value) => r.saveCheckpoint(value),
    input: <T>() => r.past("input") as Promise<T>,
    output: <T>(stage: string) => r.past("outputs", stage) as Promise<T | null>,
    outputs: <Out>() => r.results(false) as AsyncGenerator<Out | null, void>,
    settled: () => r.results(true) as AsyncGenerator<ChildResult, void>,
  };
}
