import { useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { useRef } from "preact/hooks";
import { answer, api, CallError, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { Action } from "../parts/action.tsx";
import { Problem } from "../parts/problem.tsx";
import type { Filter } from "./filters.tsx";

type BulkRedrive = Schemas["BulkRedrive"];
type BulkCancellation = Schemas["BulkCancellation"];

/** Buttons for all tasks that match a filter. What they start is an operation. */
export function AllThatMatch({ filter }: { filter: Filter }) {
  if (filter.parent) return null; // bulk calls have no such filter
  const { type, status, stage, error, since, until } = filter;
  const selection = { type, stage, error, since, until };
  return (
    <p class="buttons">
      {(status === undefined || status === "failed" || status === "cancelled") && (
        <Bulk label={`Redrive all that match`} what={status ?? "failed"}
          call={(more) => api.POST("/v1/tasks/redrive",
            { body: { ...selection, status, ...more } as BulkRedrive })} />
      )}
      {(status === undefined || status === "waiting" || status === "pending" ||
        status === "running") && (
        <Bulk label={`Cancel all that match`} what={status ?? "not yet final"} danger
          call={(more) => api.POST("/v1/tasks/cancel",
            { body: { ...selection, status, ...more } as BulkCancellation })} />
      )}
    </p>
  );
}

interface BulkProps {
  label: string;
  what: string; // the status of the tasks
  danger?: boolean;
  call: (more: { dry_run?: boolean; pace?: number }) => Promise<{
    data?: Schemas["Count"] | Schemas["Operation"]; error?: unknown; response: Response }>;
}

function Bulk({ label, what, danger = false, call }: BulkProps) {
  const { route } = useLocation();
  const n = useSignal<number | undefined>(undefined);
  const error = useSignal<CallError | undefined>(undefined);
  const pace = useSignal("");
  const counts = useRef(0);
  const begin = async () => {
    const mine = ++counts.current;
    n.value = error.value = undefined;
    try {
      const { count } = await answer(call({ dry_run: true })) as Schemas["Count"];
      if (mine === counts.current) n.value = count;
    } catch (e) {
      if (mine === counts.current) error.value = e as CallError;
    }
  };
  const run = async () => {
    const more = pace.value ? { pace: Number(pace.value) } : {};
    const operation = (await answer(call(more))) as Schemas["Operation"];
    route(`/console/operations?id=${operation.id}`);
    return `${label}: started`;
  };
  const ask = (
    <>
      <p aria-live="polite">
        {n.value !== undefined && <><strong>{count(n.value)}</strong> tasks, {what}. </>}
        {n.value === undefined && !error.value && "Counting… "}
        It runs in the background, and can be stopped.
      </p>
      <Problem error={error.value} retry={() => void begin()} />
      <label>
        The most tasks per second; empty: no limit
        <input type="number" min="0.01" step="any" value={pace.value}
          onInput={(e) => (pace.value = e.currentTarget.value)} />
      </label>
    </>
  );
  return <Action label={label} scope="operate" danger={danger} run={run} ask={ask}
    begin={() => void begin()} ready={n.value !== undefined} />;
}
