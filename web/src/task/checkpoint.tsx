import { useState } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { members } from "../json.ts";
import { useLoad } from "../load.ts";
import { Json } from "../parts/json.tsx";
import { Problem } from "../parts/problem.tsx";
import { Time } from "../parts/time.tsx";

/** What the latest attempt has left for the next one of its stage, read when it is opened. */
export function Checkpoint({ task }: { task: Schemas["Task"] }) {
  const [open, setOpen] = useState(false);
  if (task.status === "succeeded") return null;
  return (
    <details class="json" open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>Checkpoint</summary>
      {open && <Left task={task} />}
    </details>
  );
}

function Left({ task }: { task: Schemas["Task"] }) {
  const left = useLoad(async (signal) => {
    const text = await answer(api.GET("/v1/tasks/{id}/checkpoint",
      { signal, params: { path: { id: task.id } }, parseAs: "text" })) as string;
    const of = JSON.parse(text) as Schemas["TaskCheckpoint"];
    return { of, document: members(text).document };
  }, [task.id, task.stage, task.attempt]);
  if (left.error?.status === 404) return <p class="quiet">No attempt has left one.</p>;
  return (
    <>
      <Problem error={left.error} retry={left.reload} />
      {left.data && (
        <p class="quiet">In {left.data.of.stage}, <Time at={left.data.of.written_at} /></p>
      )}
      <Json label="Document" text={left.data?.document} />
    </>
  );
}
