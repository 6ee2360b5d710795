import { type Signal, useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { useRef } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { Instant, Select } from "../parts/field.tsx";
import { FilterForm, Folded, MoreFilters, Search, typedIn, useFilter }
  from "../parts/filter.tsx";
import { useQuery } from "../parts/pager.tsx";

/** The filter in the URL of the page. */
export interface Filter {
  type?: string; // all types, if absent
  status?: Schemas["Status"];
  stage?: string;
  error?: string;
  key?: string;
  text?: string;
  since?: string;
  until?: string;
  ended_since?: string;
  ended_until?: string;
  attempts?: string;
  code?: string;
  fingerprint?: string; // of the last error
  flow_key?: string;
  worker?: string;
  user?: string;
  tags?: string;
  any_tags?: string;
  metadata?: string;
  parent?: string;
  children?: string; // "true": children of fan-outs, too
  order?: "ended"; // the latest end first, of final tasks
  reverse?: "true"; // from the end of the list
  cursor?: string;
}

const names = ["type", "status", "stage", "error", "key", "text", "since", "until", "ended_since",
  "ended_until", "attempts", "code", "fingerprint", "flow_key", "worker", "user", "tags",
  "any_tags", "metadata", "parent", "children", "order", "reverse", "cursor"];

/** Returns the filter in a URL. Unknown parameters are left out: the page shows all that counts. */
export function filterOf(query: Record<string, string>): Partial<Filter> {
  return Object.fromEntries(names.filter((n) => query[n]).map((n) => [n, query[n]]));
}

/** The place in a list, and its order: they select no tasks. */
export type Place = "order" | "reverse" | "cursor";

/** Returns what a filter selects, whatever the place in the list. */
export function selects({ cursor: _, order: __, reverse: ___, ...f }: Filter): Omit<Filter, Place> {
  return f;
}

type Query = Omit<Filter, "children" | "attempts" | "reverse"> &
  { children?: false; attempts?: number; reverse?: true };

/** Returns a filter as the API takes it. By default it leaves out the children of fan-outs. */
export function queryOf({ children, attempts, reverse, ...filter }: Filter): Query {
  const query = { ...filter, ...attempts && { attempts: Number(attempts) },
    ...reverse && { reverse: true as const } };
  return children === "true" || filter.parent ? query : { ...query, children: false };
}

/** Reports whether a filter finds final tasks only: these can be listed by their ends. */
export const endsOnly = (f: Filter) => finals.includes(f.status ?? "") ||
  !!(f.ended_since || f.ended_until);

const finals = ["succeeded", "failed", "cancelled"];

/** Returns a filter as the bulk calls take it: they ask for all types by name. */
export function selectionOf(
  filter: Filter,
): Omit<Query, Place | "text"> & { all_types?: true } {
  const { text: _, ...query } = queryOf(selects(filter));
  return filter.type ? query : { ...query, all_types: true };
}

const statuses = ["waiting", "pending", "running", "succeeded", "failed", "cancelled"];

const taskID = /^[^\s.]+\.\d+\.\d+$/;

interface FiltersProps {
  filter: Filter;
  types: string[];
  stages: string[];
  unsent: Signal<boolean>; // see FilterForm
}

/** What the fields below the first ones filter by. */
const further = ["since", "until", "ended_since", "ended_until", "code", "fingerprint", "error",
  "attempts", "worker", "key", "flow_key", "user", "metadata", "tags", "any_tags", "text"] as const;

const mostPages = 10; // a page ends after 5,000 tasks were searched

/** Returns the filter that a text stands for: an idempotency key, a user, or a part of a task. */
async function meaningOf(text: string): Promise<Record<string, string>> {
  for (const field of ["key", "user"] as const) {
    let cursor: string | undefined;
    for (let n = 0; n < mostPages; n++) {
      const page = await answer(api.GET("/v1/tasks",
        { params: { query: { [field]: text, limit: 1, ...cursor && { cursor } } } }));
      if (page.data.length > 0) return { [field]: text };
      if (!(cursor = page.next_cursor)) break;
    }
  }
  return { text };
}

/** Returns the codes with which tasks failed in the last day. */
async function codesOf(type: string | undefined): Promise<string[]> {
  const since = new Date(Date.now() - 86_400_000).toISOString();
  const { groups } = await answer(api.GET("/v1/failures", { params: { query: { type, since } } }));
  return groups.flatMap((g) => g.error_code ?? []);
}

/** Returns the names of the workers of late. */
async function workersOf(type: string | undefined): Promise<string[]> {
  const { workers } = await answer(api.GET("/v1/workers", { params: { query: { type } } }));
  return workers.flatMap((w) => w.name ?? []);
}

/** The form of the filter. A change of it changes the URL. */
export function Filters({ filter, types, stages, unsent }: FiltersProps) {
  const { route } = useLocation();
  const [, link] = useQuery();
  const apply = useFilter();
  const form = useRef<HTMLFormElement | null>(null);
  const found = useSignal(0); // the field begins anew after a search
  const search = async ({ find = "", ...typed }: Record<string, string>) => {
    if (taskID.test(find)) return route(`/console/tasks/${encodeURIComponent(find)}`);
    const meaning = find ? await meaningOf(find).catch(() => ({ key: find })) : {};
    found.value++;
    apply({ ...typed, ...meaning });
  };
  // A change takes along what stands in the fields: no filter is seen that isn't applied.
  const set = (changes: Record<string, string>) =>
    void search({ ...typedIn(form.current), ...changes });
  const more = (
    <MoreFilters set={further.filter((name) => filter[name]).length}>
      <Instant label="Submitted from" applies value={filter.since}
        change={(since) => set({ since })} />
      <Instant label="Submitted until" applies value={filter.until}
        change={(until) => set({ until })} />
      <Instant label="Ended from" applies value={filter.ended_since}
        change={(ended_since) => set({ ended_since })} />
      <Instant label="Ended until" applies value={filter.ended_until}
        change={(ended_until) => set({ ended_until })} />
      <Search label="Error code" name="code" value={filter.code} most={60}
        pattern="[A-Za-z0-9][A-Za-z0-9_.\-]*" hint="503, 5xx, timeout, lost"
        suggest={() => codesOf(filter.type)} />
      <Search label="Kind of the error" name="fingerprint" value={filter.fingerprint} most={16}
        pattern="[0-9a-f]{16}" hint="a fingerprint, from Failures" />
      <Search label="Text in the error" name="error" value={filter.error} most={200} />
      <Search label="Attempts at least" name="attempts" value={filter.attempts} most={5}
        pattern="[1-9][0-9]*" hint="a number" />
      <Search label="Worker" name="worker" value={filter.worker} most={64}
        pattern="[!-~]+" hint="that runs it or ran an attempt"
        suggest={() => workersOf(filter.type)} />
      <Search label="Idempotency key" name="key" value={filter.key} most={255} />
      <Search label="Flow key" name="flow_key" value={filter.flow_key} most={255} />
      <Search label="User" name="user" value={filter.user} most={255} />
      <Search label="Metadata" name="metadata" value={filter.metadata} most={300}
        pattern="[^=]+=.*" hint="name=value" />
      <Search label="Tags, all of them" name="tags" value={filter.tags} most={1100}
        hint="separated by commas" />
      <Search label="Tags, one of them" name="any_tags" value={filter.any_tags} most={1100}
        hint="separated by commas" />
      <Search label="Text in context or outputs" name="text" value={filter.text} most={200} />
    </MoreFilters>
  );
  return (
    <Folded filter={filter}>
      <FilterForm search={search} unsent={unsent} form={form} more={more}>
        <Search label="Find by id, key, user or text" name="find" value="" most={200} first
          key={found.value} />
        <Select label="Type" value={filter.type} options={types} any
          change={(type) => set({ type, stage: "" })} />
        <Select label="Status" value={filter.status} options={statuses} any
          change={(status) => set({ status })} />
        <Select label="Stage" value={filter.stage} options={stages} any
          change={(stage) => set({ stage })} />
        {!filter.parent && (
          <label class="check">
            <input type="checkbox" checked={filter.children === "true"}
              onChange={(e) => set({ children: e.currentTarget.checked ? "true" : "" })} />
            Children of fan-outs
          </label>
        )}
        {(endsOnly(filter) || filter.order) && (
          <label class="check">
            <input type="checkbox" checked={filter.order === "ended"}
              onChange={(e) => set({ order: e.currentTarget.checked ? "ended" : "" })} />
            Latest end first
          </label>
        )}
      </FilterForm>
      {filter.parent && (
        <p>
          Children of <a href={`/console/tasks/${filter.parent}`}>{filter.parent}</a>{" "}
          <a href={link({ parent: "", cursor: "" })}>show all tasks</a>
        </p>
      )}
    </Folded>
  );
}
