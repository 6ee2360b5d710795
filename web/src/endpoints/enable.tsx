import { answer, api, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";
import { may } from "../session.ts";

interface EnableProps {
  endpoint: Schemas["Endpoint"];
  changed: () => Promise<void>;
}

/** A button that forgets the failures of an endpoint. */
export function Enable({ endpoint: e, changed }: EnableProps) {
  const run = async () => {
    await answer(api.POST("/v1/endpoints/{id}/enable", { params: { path: { id: e.id } } }));
    await changed();
    return "The endpoint is enabled";
  };
  return (
    <Action label="Enable" scope="operate" run={run}
      ask={<p>Its failures are forgotten, and deliveries flow at once.</p>} />
  );
}

/** A link to the form of a new endpoint of a stage. */
export function Register({ type, stage }: { type: string; stage: string }) {
  const query = new URLSearchParams({ type, stage });
  return (
    <a href={`/console/endpoints?${query}`}>
      {may("manage") ? "Register one" : "Its endpoints"}
    </a>
  );
}
