import { messageOf } from "./errors.js";
import { AbortedError, Fail, later, returned, thrown, type Outcome } from "./outcome.js";
import type { Callback } from "./reporter.js";
import type { Run } from "./run.js";

/** A delivery, as a handler gets it. */
export interface WorkerTask<In> {
  /** The same in all stages and attempts. */
  readonly id: string;
  readonly type: string;
  readonly stage: string;
  /** Of this stage; 1 is the first. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** The fencing number: it grows with every delivery of the task. */
  readonly seq: number;
  /** Until when a report counts, unless a heartbeat puts it off. */
  readonly deadline: Date;
  /** The task's, or the last output of a stage before. */
  readonly context: In;
  /** To report later. */
  readonly callback: Callback;
  /** Aborted when nobody waits for the result any more; its reason is an AbortedError. */
  readonly signal: AbortSignal;
  /**
   * Tells how far the work is, 0 to 100, and what it is at. It is sent once; that it didn't arrive is
   * only logged, as it is no reason to stop.
   * @throws AsyncflowError that names percent or note if it can't be sent
   */
  progress(percent: number, note?: string): Promise<void>;
}

/** How the deliveries of one handler are taken. */
export interface HandlerOptions<In> {
  /**
   * Makes a context of what came, such as the parse of a schema; what it throws fails the task for
   * good. Without it nobody checks that a context is what the handler takes it for.
   */
  parse?: (context: unknown) => In;
  /** WorkerOptions.answerWithinMs for this handler. */
  answerWithinMs?: number;
  /**
   * Aborts the handler's signal after this time, so that heartbeats don't keep work alive that
   * hangs. There is none unless told.
   */
  timeLimitMs?: number;
}

/** Works on one task: the output, or nothing, or later. It throws when the attempt has failed. */
export type Work<In, Out> = (task: WorkerTask<In>) => Out | typeof later | Promise<Out | typeof later>;

/** What came of one task of a batch; without an error it is done. */
export type BatchResult<Out> = { output?: Out; error?: unknown } | typeof later;

/** Works on tasks together. The results are in the order of the tasks; one that is missing has failed. */
export type BatchWork<In, Out> = (tasks: WorkerTask<In>[], signal: AbortSignal) => BatchResult<Out>[] | Promise<BatchResult<Out>[]>;

/** What deliveries of a stage are handed to. */
export interface Handler {
  answerWithinMs: number;
  timeLimitMs: number;
  /** Works on them without waiting for their end, and finishes each. */
  start(runs: Run[]): void;
}

/** Returns a start that works on each delivery by itself. */
export function one<In, Out>(work: Work<In, Out>, parse?: (context: unknown) => In): Handler["start"] {
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
export function together<In, Out>(work: BatchWork<In, Out>, parse?: (context: unknown) => In): Handler["start"] {
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

/** Returns a signal that is aborted when those of all runs are. */
function allAborted(runs: Run[]): AbortSignal {
  const all = new AbortController();
  const check = () => {
    if (runs.every((r) => r.signal.aborted)) all.abort(runs[0]?.signal.reason ?? new AbortedError("lost"));
  };
  for (const r of runs) r.signal.addEventListener("abort", check, { once: true });
  check();
  return all.signal;
}

function taskOf<In>(r: Run, parse?: (context: unknown) => In): WorkerTask<In> {
  const d = r.delivery;
  let context: In;
  try {
    context = parse ? parse(d.context) : (d.context as In);
  } catch (err) {
    throw new Fail(`the context can't be read: ${messageOf(err)}`, { cause: err });
  }
  return {
    id: d.task_id, type: d.type, stage: d.stage, attempt: d.attempt, maxAttempts: d.max_attempts, seq: d.seq, deadline: new Date(d.deadline),
    context, callback: d.callback, signal: r.signal,
    progress: (percent, note) => r.progress(percent, note),
  };
}
