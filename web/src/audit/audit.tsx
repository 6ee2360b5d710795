import { useRef } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { members, rowsOf } from "../json.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/empty.tsx";
import { Instant, Select } from "../parts/field.tsx";
import { FilterForm, Folded, Search, typedIn, useFilter } from "../parts/filter.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Title } from "../parts/title.tsx";
import { type AuditEntry, Entry } from "./entry.tsx";

const outcomes = ["done", "refused", "denied", "failed"] as const;

/** What the lists of entries take; it stands in the URL of the page. */
interface Filter {
  action?: string;
  subject?: string;
  outcome?: Schemas["AuditOutcome"];
  since?: string;
  until?: string;
  cursor?: string;
}

type Load = (query: Filter, signal: AbortSignal) => Promise<string>;

/** Who did what in the tenant, newest first. */
export function Audit() {
  return <Entries load={async (query, signal) => await answer(api.GET("/v1/audit",
    { signal, params: { query }, parseAs: "text" })) as string} />;
}

/** Who did what that belongs to no tenant, newest first. */
export function OperatorAudit() {
  return <Entries load={async (query, signal) => await answer(api.GET("/v1/audit/operator",
    { signal, params: { query }, parseAs: "text" })) as string} />;
}

function Entries({ load }: { load: Load }) {
  const [query] = useQuery();
  const filter = query as Filter;
  // There is no timer: each read has an entry of its own.
  const list = useLoad(async (signal) => {
    const text = await load(filter, signal);
    const { data, next_cursor: next } = JSON.parse(text) as Schemas["AuditList"];
    const details = rowsOf(text).map((e) => members(e.detail ?? "{}"));
    return { entries: data.map((e, i): AuditEntry => ({ ...e, details: details[i] ?? {} })), next };
  }, [JSON.stringify(filter)]);
  const { entries, next } = list.data ?? {};
  return (
    <>
      <Title text="Audit" doc="audit.md#reading-it" />
      <Filters filter={filter} />
      <p class="buttons">
        <button type="button" disabled={list.loading} onClick={list.reload}>Refresh</button>
      </p>
      <Problem error={list.error} retry={list.reload} />
      <Skeleton of={list} />
      {entries?.length === 0 && (
        <Empty title="No entry matches">Remove a filter to see more.</Empty>
      )}
      {!!entries?.length && (
        <ol class="entries">{entries.map((e) => <Entry key={e.id} entry={e} />)}</ol>
      )}
      <Pager next={next} />
    </>
  );
}

function Filters({ filter }: { filter: Filter }) {
  const apply = useFilter();
  const form = useRef<HTMLFormElement | null>(null);
  // A change takes along what stands in the fields: no filter is seen that isn't applied.
  const set = (changes: Record<string, string>) => apply({ ...typedIn(form.current), ...changes });
  return (
    <Folded filter={filter}>
      <FilterForm search={apply} form={form}>
        <Search label="Action" name="action" value={filter.action} most={80} hint="task_type.put"
          first />
        <Search label="By" name="subject" value={filter.subject} most={255} />
        <Select label="Outcome" value={filter.outcome} options={outcomes} any
          change={(outcome) => set({ outcome })} />
        <Instant label="From" applies value={filter.since} change={(since) => set({ since })} />
        <Instant label="Until" applies value={filter.until} change={(until) => set({ until })} />
      </FilterForm>
    </Folded>
  );
}
