import type { Schemas } from "../api.ts";

const words = {
  closed: "",
  open: "it fails",
  half_open: "it has failed, and single tasks test it",
  disabled: "it has answered 410",
};

/** Returns why an endpoint gets no deliveries, or single ones only; "": nothing is wrong. */
export function outage({ health, verification }: Schemas["Endpoint"]): string {
  return verification === "unverified" ? "it has not echoed its challenge" : words[health.state];
}
