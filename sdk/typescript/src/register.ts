import type { Client } from "./client.js";
import { AsyncflowError, invalid } from "./errors.js";
import { isSecret } from "./signing.js";
import { parseDuration, pause } from "./time.js";
import type { Endpoint, NewEndpoint } from "./types.js";
import type { Worker } from "./worker.js";

/** Where asyncflow is, and where it can reach this worker. */
export interface Registration {
  /** Needs a token with the scopes read and manage. */
  client: Client;
  /** Where deliveries are sent, the same for all handlers. */
  url: string;
  /**
   * The key for new endpoints, one of the worker's keys. Default: the first secret (whsec_…) among
   * them. If there is none, asyncflow makes an ed25519 key for each endpoint.
   */
  secret?: string;
  /** May change an endpoint before it is created: its limits, weight, batch, headers, … */
  prepare?: (endpoint: NewEndpoint) => void;
  signal?: AbortSignal;
}

const minPauseMs = 500;
const maxPauseMs = 30_000;

/**
 * Makes sure that the stage of each handler has an endpoint with the URL, and that its deliveries
 * verify here: it challenges each endpoint. So the task types must exist, and the worker must be
 * served before. An existing endpoint stays unchanged. The worker learns the public keys of the
 * endpoints.
 *
 * While asyncflow can't be reached, it tries again, until the signal is aborted.
 */
export async function register(worker: Worker, r: Registration): Promise<void> {
  if (r.secret !== undefined && !isSecret(r.secret))
    throw invalid("secret", "must start with whsec_");
  for (const stage of worker.stages) {
    for (let wait = minPauseMs; ; wait = Math.min(2 * wait, maxPauseMs)) {
      try {
        await registerStage(worker, r, stage);
        break;
      } catch (err) {
        if (!(err instanceof AsyncflowError) || !["unavailable", "uncertain"].includes(err.code))
          throw err;
        worker.log({
          level: "warn",
          message: "not registered yet",
          type: stage.type,
          stage: stage.stage,
          error: err.message,
        });
        if (!(await pause(wait, r.signal))) throw err;
      }
    }
  }
}

interface Stage {
  type: string;
  stage: string;
  answerWithinMs: number;
}

async function registerStage(worker: Worker, r: Registration, s: Stage): Promise<void> {
  await checkTime(r, s);
  const found = await endpointOf(r, s);
  const endpoint = found ?? (await create(worker, r, s));
  for (const secret of endpoint.secrets) {
    if (secret.public_key) worker.verifier.add(secret.public_key);
  }
  const verified = await r.client.verifyEndpoint(endpoint.id, r);
  if (verified.verification_error) {
    throw new AsyncflowError(
      "conflict",
      `the endpoint ${verified.id} (${verified.url}) didn't echo its challenge: ` +
        verified.verification_error,
    );
  }
  worker.log({
    level: "info",
    message: "registered",
    type: s.type,
    stage: s.stage,
    endpoint: verified.id,
    url: verified.url,
    new: !found,
  });
}

/**
 * Refuses a handler whose deliveries would time out before they are answered, unless they are never
 * accepted.
 */
async function checkTime(r: Registration, s: Stage): Promise<void> {
  const type = await r.client.taskType(s.type, r);
  const stage = type.stages.find((known) => known.name === s.stage);
  if (!stage)
    throw new AsyncflowError("not_found", `the task type ${s.type} has no stage ${s.stage}`);
  if (
    stage.timeout &&
    s.answerWithinMs !== Infinity &&
    s.answerWithinMs >= parseDuration(stage.timeout)
  ) {
    throw invalid(
      "answerWithinMs",
      `is ${s.answerWithinMs}; ` +
        `it must be below the timeout of the stage ${s.stage}, ${stage.timeout}`,
    );
  }
}

/**
 * Returns the endpoint of a stage that has the URL. If other processes have created some at the
 * same time, returns the oldest.
 */
async function endpointOf(r: Registration, s: Stage): Promise<Endpoint | undefined> {
  const all = (await r.client.endpoints(s.type, r)).filter(
    (e) => e.stage === s.stage && new URL(e.url).href === new URL(r.url).href,
  );
  const age = (e: Endpoint) => `${new Date(e.created_at).toISOString()} ${e.created_at} ${e.id}`;
  return all.sort((a, b) => (age(a) < age(b) ? -1 : 1))[0];
}

/** Creates an endpoint, or returns the one that another process created first. */
async function create(worker: Worker, r: Registration, s: Stage): Promise<Endpoint> {
  const secret = r.secret ?? worker.verifier.secret;
  const fresh: NewEndpoint = {
    type: s.type,
    stage: s.stage,
    url: r.url,
    ...(secret === undefined ? { secret_kind: "ed25519" } : { secret }),
  };
  r.prepare?.(fresh);
  try {
    return await r.client.createEndpoint(fresh, r);
  } catch (error) {
    const first =
      error instanceof AsyncflowError && error.code === "conflict"
        ? await endpointOf(r, s)
        : undefined;
    if (!first) throw error;
    return first;
  }
}
