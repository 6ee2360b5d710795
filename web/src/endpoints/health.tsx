import type { Schemas } from "../api.ts";
import { Status } from "../parts/status.tsx";
import { states } from "./outage.ts";

/** The state of a circuit breaker, in the word for what its endpoint does. */
export function Health({ state }: { state: Schemas["EndpointHealth"]["state"] }) {
  return <Status status={state} word={states[state].word} />;
}
