import type { Schemas } from "../api.ts";

/** The stages of a task's type as a row, with where the task stands. */
export function Pipeline(
  { task, stages }: { task: Schemas["Task"]; stages: Schemas["Stage"][] },
) {
  const at = stages.findIndex((s) => s.name === task.stage);
  return (
    <ol class="pipeline" aria-label="Stages">
      {stages.map((s, i) => {
        const passed = task.status === "succeeded" || i < at;
        const state = passed ? "passed" : i === at ? task.status : "next";
        return (
          <li key={s.name} class={state} aria-current={i === at ? "step" : undefined}>
            {s.name}
            <span class="quiet"><StageKind stage={s} /></span>
            <span class="hidden">, {state}</span>
          </li>
        );
      })}
    </ol>
  );
}

/** What is special about a stage, in a few words. */
export function StageKind({ stage: s }: { stage: Schemas["Stage"] }) {
  return (
    <>
      {s.mode === "claim" ? " claimed" : ""}
      {s.fan_out ? " fans out" : ""}
      {s.quorum ? ` ${s.quorum.votes} votes` : ""}
    </>
  );
}
