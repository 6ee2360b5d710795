import type { Schemas } from "../api.ts";

type State = Schemas["EndpointHealth"]["state"];

interface Words {
  /** What the endpoint does. */
  word: string;
  /** Why it gets no deliveries, or single ones only. */
  why: string;
  /** What follows from it. */
  then?: string;
}

/** What the states of a circuit breaker mean for an endpoint. */
export const states: Record<State, Words> = {
  closed: { word: "delivering", why: "" },
  open: { word: "stopped", why: "it fails", then: ", and gets no deliveries for a while" },
  half_open: { word: "being tested", why: "it has failed, and single tasks test it" },
  disabled: { word: "disabled", why: "it has answered 410",
    then: ", and gets no deliveries until it is enabled" },
};

/** Returns why an endpoint gets no deliveries, or single ones only; "": nothing is wrong. */
export function outage({ health, verification }: Schemas["Endpoint"]): string {
  return verification === "unverified" ? "it has not echoed its challenge"
    : states[health.state].why;
}
