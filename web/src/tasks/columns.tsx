import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Schemas } from "../api.ts";
import { duration } from "../format.ts";
import { Time } from "../parts/time.tsx";
import { keep, kept, textsOf } from "./kept.ts";

type Task = Schemas["Task"];

/** The columns that can be chosen, by their titles. */
export const columns: Record<string, (t: Task) => ComponentChildren> = {
  Key: (t) => t.key,
  "Flow key": (t) => t.flow_key,
  Duration: (t) => t.turnaround_ms !== undefined && duration(t.turnaround_ms),
  Ended: (t) => t.finished_at && <Time at={t.finished_at} />,
  Endpoint: (t) => t.run?.endpoint,
  Worker: (t) => t.run?.worker ?? t.run?.claimer,
  User: (t) => t.user,
  Tags: (t) => t.tags?.join(", "),
};

const titles = Object.keys(columns);

const chosen = signal<string[] | undefined>(undefined);

/** Returns the titles of the columns that are shown, in their order. */
export function shownColumns(): string[] {
  const names = chosen.value ?? textsOf(kept("columns"), titles.length);
  return titles.filter((title) => names.includes(title));
}

/** Boxes to choose columns by. The browser keeps the choice. */
export function Columns() {
  const shown = shownColumns();
  const choose = (title: string, on: boolean) => {
    chosen.value = on ? [...shown, title] : shown.filter((one) => one !== title);
    keep("columns", chosen.value);
  };
  return (
    <details class="menu">
      <summary>Columns</summary>
      <fieldset>
        <legend class="hidden">Columns to show</legend>
        {titles.map((title) => (
          <label key={title} class="check">
            <input type="checkbox" checked={shown.includes(title)}
              onChange={(e) => choose(title, e.currentTarget.checked)} />
            {title}
          </label>
        ))}
      </fieldset>
    </details>
  );
}
