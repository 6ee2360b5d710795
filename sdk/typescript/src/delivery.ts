import type { Callback } from "./reporter.js";
import type { FinalEvent } from "./types.js";

/** A delivery as asyncflow sends it. Unknown fields are ignored: later versions may add some. */
export interface Delivery {
  task_id: string;
  type: string;
  type_version?: number;
  stage: string;
  attempt: number;
  max_attempts: number;
  seq: number;
  deadline: string;
  context?: unknown;
  checkpoint?: unknown;
  callback: Callback;
  fan_out?: FanOut;
  test?: boolean;
  input?: unknown;
  outputs?: Record<string, unknown>;
  by_url?: string[];
  links?: Record<string, Record<string, string>>;
  user?: string;
  tags?: string[];
  metadata?: Record<string, string>;
  trace?: string;
  traceparent?: string;
}

/** Which part of another task's work a child is. */
export interface FanOut {
  /** The id of that task. */
  readonly parent: string;
  /** From 0. */
  readonly index: number;
  /** Of all children. */
  readonly count: number;
  /** What the children have in common. */
  readonly shared?: unknown;
}

/** The body of a request: deliveries of one stage, or a challenge. */
export type Envelope =
  { challenge: string } | { batch: boolean; deliveries: [Delivery, ...Delivery[]] };

/** Why a request is not worked on. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Reads the body of a verified request. @throws Refused 400 */
export function readEnvelope(text: string): Envelope {
  let doc: unknown;
  try {
    doc = JSON.parse(text);
  } catch {
    throw new Refused(400, "the body is no delivery: it is not JSON");
  }
  if (!isObject(doc)) throw new Refused(400, "the body is no delivery: it is no object");
  if (doc["type"] === "asyncflow.challenge") return { challenge: String(doc["challenge"]) };
  const batch = Array.isArray(doc["deliveries"]);
  const [first, ...rest] = (batch ? (doc["deliveries"] as unknown[]) : [doc]).map(checked);
  if (!first) throw new Refused(400, "the batch has no deliveries");
  if (rest.some((d) => d.type !== first.type || d.stage !== first.stage))
    throw new Refused(400, "the batch has deliveries of several stages");
  return { batch, deliveries: [first, ...rest] };
}

function checked(d: unknown): Delivery {
  const whole =
    isObject(d) &&
    typeof d["task_id"] === "string" &&
    d["task_id"] !== "" &&
    isObject(d["callback"]) &&
    typeof d["callback"]["url"] === "string" &&
    typeof d["deadline"] === "string" &&
    !Number.isNaN(Date.parse(d["deadline"]));
  if (!whole)
    throw new Refused(400, "the body is no delivery: it needs task_id, callback and deadline");
  return d as unknown as Delivery;
}

/**
 * Returns the event of the end of a task; undefined: the body is something else. No task type has a
 * dot in its name.
 */
export function readEvent(text: string): FinalEvent | undefined {
  let doc: unknown;
  try {
    doc = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!isObject(doc) || typeof doc["type"] !== "string" || !doc["type"].startsWith("task."))
    return undefined;
  const { id, data } = doc;
  if (
    typeof id !== "string" ||
    !isObject(data) ||
    typeof data["id"] !== "string" ||
    !["succeeded", "failed", "cancelled"].includes(String(data["status"]))
  )
    throw new Refused(400, "the body is no event: it needs id, and data with id and status");
  return doc as unknown as FinalEvent;
}

function isObject(v: unknown): v is Record<string, unknown> {
  return typeof v === "object" && v !== null && !Array.isArray(v);
}
