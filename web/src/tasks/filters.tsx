import { useLocation } from "preact-iso";
import type { Schemas } from "../api.ts";
import { Instant, Select } from "../parts/field.tsx";
import { useQuery } from "../parts/pager.tsx";

/** What GET /v1/tasks takes; it stands in the URL of the page. */
export interface Filter {
  type: string;
  status?: Schemas["Status"];
  stage?: string;
  error?: string;
  since?: string;
  until?: string;
  parent?: string;
  cursor?: string;
}

const names = ["status", "stage", "error", "since", "until", "parent", "cursor"];

/** Returns the filter in a URL. What it doesn't know is left out: the page shows all that counts. */
export function filterOf(query: Record<string, string>): Partial<Filter> {
  return Object.fromEntries(names.filter((n) => query[n]).map((n) => [n, query[n]]));
}

const statuses = ["waiting", "pending", "running", "succeeded", "failed", "cancelled"];

/** The form of the filter. A change of it changes the URL. */
export function Filters(
  { filter, types, stages }: { filter: Filter; types: string[]; stages: string[] },
) {
  const { route } = useLocation();
  const [, link] = useQuery();
  const set = (changes: Record<string, string>) => route(link({ cursor: "", ...changes }));
  const find = (e: SubmitEvent) => {
    e.preventDefault();
    const form = new FormData(e.currentTarget as HTMLFormElement);
    const text = String(form.get("find")).trim();
    if (/^[^\s.]+\.\d+\.\d+$/.test(text)) route(`/console/tasks/${encodeURIComponent(text)}`);
    else set({ error: text });
  };
  return (
    <form class="filters" role="search" onSubmit={find}>
      <Select label="Type" value={filter.type} options={types}
        change={(type) => set({ type, stage: "", parent: "" })} />
      <Select label="Status" value={filter.status} options={statuses} any
        change={(status) => set({ status })} />
      <Select label="Stage" value={filter.stage} options={stages} any
        change={(stage) => set({ stage })} />
      <Instant label="Submitted from" value={filter.since} change={(since) => set({ since })} />
      <Instant label="until" value={filter.until} change={(until) => set({ until })} />
      <label class="wide">
        Error text, or a task's id
        <input type="search" name="find" data-search maxLength={200} key={filter.error}
          defaultValue={filter.error} />
      </label>
      <button type="submit">Search</button>
      {filter.parent && (
        <p>
          Children of <a href={`/console/tasks/${filter.parent}`}>{filter.parent}</a>{" "}
          <a href={link({ parent: "", cursor: "" })}>show all tasks</a>
        </p>
      )}
    </form>
  );
}
