import type { Outcome } from "./outcome.js";
import type { Run } from "./run.js";
import { after, formatDuration } from "./time.js";

/** The answer to a request; body "": none. */
export interface Answer {
  status: number;
  body: string;
  headers?: Record<string, string>;
}

/** A request, its deliveries, and its one answer. */
export class Exchange {
  readonly runs: Run[] = [];
  /** Resolves when the answer is made. */
  readonly answered: Promise<Answer>;
  /** Resolves when the answer was sent (true), or the connection broke (false). */
  readonly sent: Promise<boolean>;
  private decided = false;
  private setAnswered: (a: Answer) => void = () => {};
  private setSent: (arrived: boolean) => void = () => {};

  constructor(
    private readonly batch: boolean,
    private readonly done: (a: Answer) => void,
  ) {
    this.answered = new Promise((resolve) => (this.setAnswered = resolve));
    this.sent = new Promise((resolve) => (this.setSent = resolve));
  }

  /** Decides on the answer when all deliveries are done, or when time is up. */
  wait(mostMs: number): void {
    const stop = after(mostMs, () => this.decide(false));
    void this.answered.then(stop);
    void Promise.all(this.runs.map((r) => r.finished)).then(() => this.decide(false));
  }

  /** The answer was sent, or can't be sent any more: then all deliveries are reported. */
  end(arrived: boolean): void {
    if (!arrived) {
      this.decide(true);
      for (const r of this.runs) void r.beat();
    }
    this.setSent(arrived);
  }

  /**
   * Makes the answer, once. It has the results that are there; the other deliveries are accepted.
   * If nobody can be answered any more, all of them are.
   */
  decide(nobody: boolean): void {
    if (this.decided) return;
    this.decided = true;
    const outcomes = this.runs.map((r) => r.answer(nobody));
    const answer = this.answerOf(outcomes);
    this.done(answer);
    this.setAnswered(answer);
  }

  private answerOf(outcomes: Outcome[]): Answer {
    if (outcomes.every((o) => o.kind === "accepted")) return { status: 202, body: "" };
    if (!this.batch) return { status: 200, body: `{${outcomes.flatMap(fieldsOf).join(",")}}` };
    const results = outcomes.map((o, i) => {
      const id = `"task_id":${JSON.stringify(this.runs[i]?.delivery.task_id)}`;
      return `{${[id, ...fieldsOf(o)].join(",")}}`;
    });
    return { status: 200, body: `{"results":[${results.join(",")}]}` };
  }
}

// fieldsOf returns the fields of an outcome in an answer.
function fieldsOf(o: Outcome): string[] {
  const fields: string[] = [];
  if (o.kind !== "done") fields.push(`"outcome":"${o.kind}"`);
  if (o.output !== undefined) fields.push(`"output":${o.output}`);
  if (o.error !== undefined) fields.push(`"error":${JSON.stringify(o.error)}`);
  if (o.retryAfterMs && o.retryAfterMs > 0)
    fields.push(`"retry_after":"${formatDuration(o.retryAfterMs)}"`);
  if (o.nextStage !== undefined) fields.push(`"next_stage":${JSON.stringify(o.nextStage)}`);
  if (o.finish) fields.push(`"finish":true`);
  if (o.spawn !== undefined) fields.push(`"spawn":${o.spawn}`);
  if (o.join !== undefined) fields.push(`"join":${o.join}`);
  return fields;
}

const remembered = 10_000; // answers that are kept for repeated requests
const rememberedLength = 4096; // the longest body of each

/** The requests in flight and the last answered ones, by id. */
export class Requests {
  private readonly known = new Map<string, Answer | Promise<Answer>>();

  /** The present or future answer to the request with this id. */
  find(id: string): Answer | Promise<Answer> | undefined {
    return this.known.get(id);
  }

  begin(id: string, answered: Promise<Answer>): void {
    this.known.set(id, answered);
  }

  /** Keeps an answer, as the newest. */
  answered(id: string, a: Answer): void {
    const notKept = {
      status: 409,
      body: '{"error":"this delivery was answered before; the answer is not kept"}',
    };
    this.known.delete(id);
    this.known.set(id, a.body.length > rememberedLength ? notKept : a);
    for (const [oldest, answer] of this.known) {
      if (this.known.size <= remembered) return;
      if (!(answer instanceof Promise)) this.known.delete(oldest);
    }
  }
}
