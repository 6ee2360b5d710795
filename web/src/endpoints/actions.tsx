import { useLocation } from "preact-iso";
import { answer, api, CallError, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { Change } from "./change.tsx";
import { nameOf } from "./endpoints.tsx";
import { Rotate } from "./rotate.tsx";
import { Enable } from "./enable.tsx";
import { Test } from "./test.tsx";

interface Props {
  endpoint: Schemas["Endpoint"];
  etag: string | undefined;
  changed: () => Promise<void>;
}

/** The buttons of an endpoint. */
export function EndpointActions({ endpoint: e, etag, changed }: Props) {
  const path = { params: { path: { id: e.id } } };
  const verify = async () => {
    const { verification, verification_error: why } = await answer(
      api.POST("/v1/endpoints/{id}/verify", path));
    await changed();
    if (why) throw new CallError(0, { detail: `The endpoint failed the challenge: ${why}` });
    return `The endpoint is ${verification}`;
  };
  return (
    <p class="buttons">
      {e.health.state !== "closed" && <Enable endpoint={e} changed={changed} />}
      {!e.listen && (
        <Action label="Verify" scope="manage" run={verify}
          ask={<p>It is sent a challenge, and has 10 seconds to echo it.</p>} />
      )}
      {!e.listen && e.verification !== "unverified" && <Test endpoint={e} />}
      <Change endpoint={e} etag={etag} changed={changed} />
      <Rotate endpoint={e} changed={changed} />
      <Delete endpoint={e} />
    </p>
  );
}

function Delete({ endpoint: e }: { endpoint: Schemas["Endpoint"] }) {
  const { route } = useLocation();
  const run = async () => {
    await answer(api.DELETE("/v1/endpoints/{id}", { params: { path: { id: e.id } } }));
    route(`/console/endpoints?type=${e.type}`);
    return "The endpoint is deleted";
  };
  const ask = (
    <p>
      Delete <strong class="long">{nameOf(e)}</strong> with its secrets? This can't be undone.
      If the stage has no other endpoint, its tasks wait.
    </p>
  );
  return <Action label="Delete" scope="manage" danger ask={ask} run={run} />;
}
