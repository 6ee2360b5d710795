import { signal, useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { Field } from "../parts/field.tsx";
import { filterOf } from "./filters.tsx";
import { keep, kept } from "./kept.ts";

const most = 50; // views

const saved = signal<Record<string, string> | undefined>(undefined);

/** Returns the views that this browser keeps: their filters, as in a URL, by their names. */
function views(): Record<string, string> {
  const all = saved.value ?? kept("views");
  if (typeof all !== "object" || all === null) return {};
  return Object.fromEntries(Object.entries(all)
    .filter(([, query]) => typeof query === "string").slice(0, most));
}

function save(all: Record<string, string>): void {
  saved.value = all;
  keep("views", all);
}

/** Filters with a name, kept by this browser. */
export function Views() {
  const { query } = useLocation();
  const name = useSignal("");
  const all = views();
  const now = String(new URLSearchParams({ ...filterOf(query), cursor: "" }))
    .replace(/&?cursor=$/, "");
  const add = (e: SubmitEvent) => {
    e.preventDefault();
    save({ ...all, [name.value.trim()]: now });
    name.value = "";
  };
  return (
    <details class="menu">
      <summary>Views</summary>
      <div>
        {Object.keys(all).length === 0 && <p class="quiet">None is saved in this browser.</p>}
        <ul class="plain">
          {Object.entries(all).map(([title, filter]) => (
            <li key={title}>
              <a href={`/console/tasks?${filter}`}
                aria-current={filter === now ? "true" : undefined}>{title}</a>{" "}
              <button type="button" class="small" aria-label={`Forget the view ${title}`}
                onClick={() => save(Object.fromEntries(
                  Object.entries(all).filter(([other]) => other !== title)))}>Forget</button>
            </li>
          ))}
        </ul>
        {Object.keys(all).length < most && (
          <form onSubmit={add}>
            <Field label="Name of this filter" value={name} required maxLength={80}
              pattern=".*\S.*" />
            <button type="submit">Save view</button>
          </form>
        )}
      </div>
    </details>
  );
}
