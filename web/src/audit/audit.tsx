import { useLocation } from "preact-iso";
import { answer, api, type Schemas } from "../api.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/empty.tsx";
import { Instant, Select } from "../parts/field.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Title } from "../parts/title.tsx";
import { Entry } from "./entry.tsx";

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

type Load = (query: Filter, signal: AbortSignal) => Promise<Schemas["AuditList"]>;

/** Who did what in the tenant, newest first. */
export function Audit() {
  return <Entries load={(query, signal) => answer(api.GET("/v1/audit",
    { signal, params: { query } }))} />;
}

/** Who did what that belongs to no tenant, newest first. */
export function OperatorAudit() {
  return <Entries load={(query, signal) => answer(api.GET("/v1/audit/operator",
    { signal, params: { query } }))} />;
}

function Entries({ load }: { load: Load }) {
  const [query] = useQuery();
  const filter = query as Filter;
  // There is no timer: each read has an entry of its own.
  const list = useLoad((signal) => load(filter, signal), [JSON.stringify(filter)]);
  const { data, next_cursor: next } = list.data ?? {};
  return (
    <>
      <Title text="Audit" />
      <Filters filter={filter} />
      <p class="buttons">
        <button type="button" disabled={list.loading} onClick={list.reload}>Refresh</button>
      </p>
      <Problem error={list.error} retry={list.reload} />
      {data?.length === 0 && <Empty title="No entry matches">Remove a filter to see more.</Empty>}
      {!!data?.length && (
        <ol class="entries">{data.map((e) => <Entry key={e.id} entry={e} />)}</ol>
      )}
      <Pager next={next} />
    </>
  );
}

function Filters({ filter }: { filter: Filter }) {
  const { route } = useLocation();
  const [, link] = useQuery();
  const set = (changes: Record<string, string>) => route(link({ cursor: "", ...changes }));
  const search = (e: SubmitEvent) => {
    e.preventDefault();
    const form = new FormData(e.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name)).trim();
    set({ action: text("action"), subject: text("subject") });
  };
  return (
    <form class="filters" role="search" onSubmit={search}>
      <label>
        Action, such as task_type.put
        <input name="action" data-search maxLength={80} key={filter.action}
          defaultValue={filter.action} />
      </label>
      <label>
        By the subject
        <input name="subject" maxLength={255} key={filter.subject}
          defaultValue={filter.subject} />
      </label>
      <Select label="Outcome" value={filter.outcome} options={outcomes} any
        change={(outcome) => set({ outcome })} />
      <Instant label="From" value={filter.since} change={(since) => set({ since })} />
      <Instant label="until" value={filter.until} change={(until) => set({ until })} />
      <button type="submit">Search</button>
    </form>
  );
}
