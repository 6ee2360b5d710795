import type { components } from "../../sdk/typescript/src/api.gen.ts";
import { faultOf } from "./json_fault.ts";
import { sessionEnded } from "./session.ts";

export { api } from "./call.ts";

/** The schemas of openapi.yaml. */
export type Schemas = components["schemas"];

/** A call that was refused or that got no answer. */
export class CallError extends Error {
  /** The HTTP status; 0: there was no answer. */
  readonly status: number;
  readonly problem: Partial<Schemas["Problem"]>;
  /** When the page makes the call again by itself, in ms since 1970; undefined: it doesn't. */
  again: number | undefined;

  constructor(status: number, problem: Partial<Schemas["Problem"]>) {
    super(problem.detail ?? problem.title ?? `the server answered ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** Reports whether the same call may succeed in a moment. */
export function passes({ status }: CallError): boolean {
  return status === 0 || status === 408 || status === 429 || status >= 500;
}

/** Returns the error of a field that can't be sent as it is. */
export function refused(field: string, message: string): CallError {
  return new CallError(0, { detail: `${field} ${message}`, errors: [{ field, message }] });
}

/** Throws the error of a field whose text isn't JSON, with the place of the fault. */
export function checkJSON(field: string, text: string): void {
  const fault = faultOf(text);
  if (fault) throw refused(field, `isn't JSON: ${fault}`);
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Something configured, as it was when it was read. */
export interface Tagged<T> {
  value: T;
  /** For If-Match: the server refuses a change if somebody else has made one since. */
  etag: string | undefined;
}

/** Returns the data of a call. Throws a CallError if it was refused or got no answer. */
export async function answer<T>(call: Promise<Answer<T>>): Promise<T> {
  return (await tagged(call)).value;
}

/** Returns the data of a call, and its ETag. Throws as answer does. */
export async function tagged<T>(call: Promise<Answer<T>>): Promise<Tagged<T>> {
  let got: Answer<T>;
  try {
    got = await call;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new CallError(0, { detail: "The server can't be reached." });
  }
  if (got.response.status === 401) sessionEnded();
  if (got.error !== undefined || !got.response.ok) {
    throw new CallError(got.response.status, withField(problemOf(got.error)));
  }
  // A proxy that compresses answers makes their ETags weak, and a weak one never matches.
  const etag = got.response.headers.get("ETag")?.replace(/^W\//, "");
  return { value: got.data as T, etag };
}

/** Returns the header of a PUT: it changes what was read; nothing was read: it only creates. */
export function unchanged(read: Tagged<unknown> | undefined) {
  return read ? { "If-Match": read.etag } : { "If-None-Match": "*" };
}

/** Has a call throw, instead of a 412, that a field has a name that is in use. */
export async function named<T>(field: string, message: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (e) {
    throw e instanceof CallError && e.status === 412 ? refused(field, message) : e;
  }
}

/** Lists the field of a body that could not be read: such a problem has it only in its detail. */
function withField(problem: Partial<Schemas["Problem"]>): Partial<Schemas["Problem"]> {
  const [, field, message] = /field "([^"]+)" (.+)/s.exec(problem.detail ?? "") ?? [];
  if (!field || !message || problem.errors?.length) return problem;
  return { ...problem, errors: [{ field, message }] };
}

function problemOf(error: unknown): Partial<Schemas["Problem"]> {
  const text = String(error);
  try {
    return Object(JSON.parse(text)) as Partial<Schemas["Problem"]>;
  } catch {
    return { detail: text.slice(0, 500) };
  }
}
