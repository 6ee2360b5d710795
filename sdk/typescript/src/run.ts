import type { Delivery } from "./delivery.js";
import { AsyncflowError, invalid, ProblemError, messageOf } from "./errors.js";
import { AbortedError, shorten, type Outcome } from "./outcome.js";
import type { Reporter } from "./reporter.js";
import { resultsOf } from "./results.js";
import { after, formatDuration, limit } from "./time.js";

/** A log line, about a delivery or another request. */
export interface LogLine {
  level: "info" | "warn" | "error";
  message: string;
  /** task, type, stage, attempt, outcome, by (answer or report), durationMs, error, … */
  [field: string]: unknown;
}

/** What a run needs of the request that brought its delivery. */
interface Request {
  /** Resolves when the answer is made. */
  readonly answered: Promise<unknown>;
  /** Resolves when the answer was sent (true), or the connection broke (false). */
  readonly sent: Promise<boolean>;
}

/** What a run needs of its worker. */
export interface RunOptions {
  reporter: Reporter;
  /**
   * The interval of heartbeats, in milliseconds; undefined: a third of the time left, at most 30 s.
   */
  heartbeatMs: number | undefined;
  timeLimitMs: number;
  log: (line: LogLine) => void;
  ended: (r: Run) => void;
}

// The codes of refused reports after which the attempt is retried: the output wasn't at fault.
const retried = ["invalid_next_stage", "invalid_spawn", "quota_exceeded"];
const maxHeartbeatMs = 30_000;
const minHeartbeatMs = 100;
const beatTimeoutMs = 10_000;
// How long after the deadline a result is still reported. It counts until another attempt has
// started, such as after asyncflow was away.
const lateReportsMs = 60_000;

/**
 * One delivery while it is worked on. Its handler ends it by finish. Meanwhile it sends heartbeats,
 * and aborts the handler's signal when the attempt is over.
 */
export class Run {
  /** The handler's return value, once it is there. */
  result: Outcome | undefined;
  /** The result isn't in the answer. */
  accepted = false;
  /** Resolves when the handler has ended. */
  readonly finished: Promise<void>;
  private setFinished: () => void = () => {};

  private readonly handler = new AbortController();
  private readonly calls = new AbortController(); // for calls to asyncflow
  private readonly start = Date.now();
  private readonly intervalMs: number;
  // Of this machine's clock to the database's clock, which deadlines use.
  private readonly offset: number;
  private over = false;
  private late = false; // the deadline has passed
  private stopBeats = () => {};
  private stopEnd = () => {};
  private readonly stopTimeLimit: () => void;

  constructor(
    readonly delivery: Delivery,
    private readonly request: Request,
    private readonly options: RunOptions,
    clockOffset: number,
  ) {
    this.finished = new Promise((resolve) => (this.setFinished = resolve));
    this.offset = clockOffset;
    const left = this.left(delivery.deadline);
    this.intervalMs =
      options.heartbeatMs ?? Math.max(Math.min(left / 3, maxHeartbeatMs), minHeartbeatMs);
    this.stopTimeLimit = after(options.timeLimitMs, () =>
      this.abort(new AbortedError("timeLimit")),
    );
    this.nextBeat();
    this.endIn(left);
  }

  /** The handler's signal. */
  get signal(): AbortSignal {
    return this.handler.signal;
  }

  get inTime(): boolean {
    return this.left(this.delivery.deadline) > 0;
  }

  abort(reason: AbortedError): void {
    if (!this.handler.signal.aborted) this.handler.abort(reason);
  }

  /** Takes the result of the handler. Resolves once it is in the answer, or reported. */
  async finish(o: Outcome): Promise<void> {
    this.result = o;
    this.setFinished();
    await this.request.answered;
    let by = "answer";
    let failure: unknown;
    // reporting a recorded result again changes nothing
    if (this.accepted || !(await this.request.sent)) {
      by = "report";
      failure = await this.report(o).then(
        () => undefined,
        (err: unknown) => err,
      );
    }
    this.over = true;
    this.stopBeats();
    this.stopEnd();
    this.stopTimeLimit();
    this.logEnd(o, by, failure);
    this.options.ended(this);
  }

  /** Gives up reporting. */
  endCalls(): void {
    this.calls.abort(new AbortedError("lost"));
  }

  /**
   * Its part of the answer. If nobody can be answered any more, even a finished run is accepted,
   * and then reported.
   */
  answer(nobody: boolean): Outcome {
    this.accepted = nobody || this.result === undefined || this.result.kind === "accepted";
    return this.accepted || !this.result ? { kind: "accepted" } : this.result;
  }

  /** Sends a heartbeat now: a broken connection may mean that the attempt is over. */
  async beat(): Promise<void> {
    this.stopBeats();
    if (this.over) return;
    const within = limit(Math.min(this.intervalMs, beatTimeoutMs), this.calls.signal);
    try {
      const deadline = await this.options.reporter.heartbeat(this.delivery.callback, within.signal);
      if (!this.over && !Number.isNaN(deadline.getTime())) {
        this.late = false;
        this.endIn(this.left(deadline));
      }
    } catch (err) {
      if (err instanceof AbortedError) return this.abort(err); // no more heartbeats
      if (!this.over) this.log("warn", "no heartbeat", { error: messageOf(err) });
    } finally {
      within.done();
    }
    if (!this.over) this.nextBeat();
  }

  /**
   * Reports the handler's progress. A failure to send it is only logged: the handler must not fail
   * because of it.
   */
  async progress(percent: number, note?: string): Promise<void> {
    const { callback } = this.delivery;
    await this.tell("no progress", () =>
      this.options.reporter.progress(callback, percent, note, this.signal),
    );
  }

  /** Leaves a value for the next attempt of the stage. Failures are treated as by progress. */
  async saveCheckpoint(value: unknown): Promise<void> {
    const { callback } = this.delivery;
    await this.tell("no checkpoint", () =>
      this.options.reporter.checkpoint(callback, value, this.signal),
    );
  }

  private async tell(failed: string, send: () => Promise<unknown>): Promise<void> {
    try {
      await send();
    } catch (err) {
      const invalid = err instanceof AsyncflowError && !(err instanceof ProblemError);
      if (invalid) throw err; // the handler's own mistake
      if (!this.signal.aborted) this.log("warn", failed, { error: messageOf(err) });
      if (err instanceof AbortedError) await this.beat(); // it tells whether the attempt is over
    }
  }

  /** Returns the input or an output, if it was too long for the delivery by its URL. */
  async past(field: "input" | "outputs", stage?: string): Promise<unknown> {
    const { callback, by_url: linked, stage: own, ...d } = this.delivery;
    if (linked?.includes(stage === undefined ? field : `${field}.${stage}`)) {
      const path = stage === undefined ? field : `${field}/${stage}`;
      return this.options.reporter.document(callback, path, this.signal);
    }
    const doc = stage === undefined ? d.input : d.outputs?.[stage];
    if (doc === undefined)
      throw invalid("deliver", `of stage ${own} doesn't ask for the ${stage ?? "input"}`);
    return doc;
  }

  /** Yields the results of a fan-out, which its context has, or whose URL it has. */
  results(settled: boolean): AsyncGenerator<unknown, void> {
    const { callback, context } = this.delivery;
    return resultsOf(
      context,
      (url, from) => this.options.reporter.results(callback, url, from, this.signal),
      settled,
    );
  }

  private nextBeat(): void {
    this.stopBeats();
    this.stopBeats = after(this.intervalMs, () => void this.beat());
  }

  // endIn ends the attempt after a time: first the handler's work, some time later the reports.
  private endIn(ms: number): void {
    this.stopEnd();
    this.stopEnd = after(ms, () => {
      if (this.late) return this.endCalls();
      this.late = true;
      this.abort(new AbortedError("lost"));
      this.endIn(lateReportsMs);
    });
  }

  // left returns the time until a deadline, by this machine's clock.
  private left(deadline: string | Date): number {
    return new Date(deadline).getTime() + this.offset - Date.now();
  }

  // report reports the result to asyncflow. An output that is refused fails the task for good: it
  // would be refused again. A next stage or tasks to start that are refused fail the attempt, as in
  // an answer.
  private async report(o: Outcome): Promise<void> {
    if (o.kind === "accepted") return;
    const why = this.signal.reason instanceof AbortedError ? this.signal.reason : undefined;
    // A lost attempt is retried anyway.
    if (why?.why === "cancelled" || (why?.why === "lost" && o.kind === "retry")) throw why;
    const { reporter } = this.options;
    try {
      await reporter.report(this.delivery.callback, o, this.calls.signal);
    } catch (err) {
      if (
        o.kind === "done" &&
        err instanceof ProblemError &&
        err.status >= 400 &&
        err.status < 500 &&
        err.status !== 429
      ) {
        const refused: Outcome = {
          kind: retried.includes(err.code) ? "retry" : "fail",
          error: shorten(`asyncflow refused the output: ${err.message}`),
        };
        await reporter.report(this.delivery.callback, refused, this.calls.signal);
      }
      throw err;
    }
  }

  private logEnd(o: Outcome, by: string, failure: unknown): void {
    const fields = {
      outcome: o.kind,
      by,
      durationMs: Date.now() - this.start,
      ...(o.error ? { failure: o.error } : {}),
      ...(o.retryAfterMs ? { retryAfter: formatDuration(o.retryAfterMs) } : {}),
    };
    if (failure === undefined) this.log("info", "delivery", fields);
    else if (failure instanceof AbortedError)
      this.log("warn", "delivery: the result counts no more", {
        ...fields,
        error: failure.message,
      });
    else this.log("error", "delivery: not reported", { ...fields, error: messageOf(failure) });
  }

  private log(level: LogLine["level"], message: string, fields: Record<string, unknown>): void {
    const { task_id, type, stage, attempt } = this.delivery;
    this.options.log({ level, message, task: task_id, type, stage, attempt, ...fields });
  }
}
