import { answer, api, type Schemas } from "../api.ts";
import { Action } from "../parts/action.tsx";

interface StopProps {
  operation: Schemas["Operation"];
  stopped: () => void;
}

/** The button that stops an operation, as long as it runs. */
export function Stop({ operation: { id, kind, state }, stopped }: StopProps) {
  if (state !== "running") return null;
  const run = async () => {
    await answer(api.POST("/v1/operations/{id}/stop", { params: { path: { id } } }));
    stopped();
    return kind === "count" ? "The count is stopped" : "The operation is stopped";
  };
  return (
    <Action label="Stop" scope="operate" danger run={run}
      ask={<p>What it has done stays done. It can't go on later.</p>} />
  );
}
