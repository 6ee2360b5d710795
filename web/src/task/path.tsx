import { useSignal } from "@preact/signals";
import type { Schemas } from "../api.ts";
import { count } from "../format.ts";
import { Ways } from "../parts/ways.tsx";
import { StageKind } from "./pipeline.tsx";

type Task = Schemas["Task"];
type Stage = Schemas["Stage"];
type Visit = Schemas["Visit"];

/** The stages of a type that branches, with the ways that a task may take and has taken. */
export function TaskWays({ task, stages }: { task: Task; stages: Stage[] }) {
  const path = task.path ?? [];
  const at = stages.findIndex((s) => s.name === task.stage);
  const taken = waysTaken(task, stages);
  return (
    <Ways stages={stages} current={at} taken={(from, to) => taken.has(`${from} ${to}`)}
      row={(s, i) => {
        const visits = path.findLast((v) => v.stage === s.name)?.visit ?? 0;
        const here = i === at && task.status !== "succeeded";
        const state = here ? task.status : visits ? "passed" : "next";
        return (
          <>
            <strong class={state}>{s.name}</strong>
            <span class="hidden">, {state}</span>
            <span class="quiet">
              {visits > 1 && ` ${count(visits)} visits`}
              <StageKind stage={s} />
            </span>
          </>
        );
      }} />
  );
}

/** Returns the ways from stage to stage that a task took, as far as its path tells. */
function waysTaken(task: Task, stages: Stage[]): Set<string> {
  const indexes = (task.path ?? []).map((v) => stages.findIndex((s) => s.name === v.stage));
  if (task.status === "succeeded") indexes.push(stages.length);
  return new Set(indexes.slice(1).map((to, i) => `${indexes[i]} ${to}`));
}

const ends = 10; // visits of a long path that are shown at its begin, and at its end

/** The visits of a task in their order, without the middle of a long path. */
export function Path({ task: { path, steps: all = 0 } }: { task: Task }) {
  const whole = useSignal(false);
  if (!path) return null;
  const earlier = all - path.length; // the server has left them out
  const more = path.length - 2 * ends;
  const cut = more > 0 && !whole.value;
  const steps = (some: Visit[]) =>
    some.map((v) => <Step key={`${v.stage} ${v.visit}`} visit={v} />);
  return (
    <section>
      <h2>Path</h2>
      <ol class="path" aria-label="Path">
        {earlier > 0 && <li class="quiet">{count(earlier)} earlier visits</li>}
        {steps(cut ? path.slice(0, ends) : path)}
        {cut && <li class="quiet">{count(more)} more</li>}
        {cut && steps(path.slice(-ends))}
      </ol>
      {more > 0 && (
        <button type="button" aria-expanded={whole.value}
          onClick={() => (whole.value = !whole.value)}>Show all {count(path.length)}</button>
      )}
    </section>
  );
}

function Step({ visit: v }: { visit: Visit }) {
  return (
    <li>
      {v.stage}{v.visit > 1 && ` #${count(v.visit)}`}
      {v.attempts > 1 && <span class="quiet"> ({v.attempts} attempts)</span>}
    </li>
  );
}
