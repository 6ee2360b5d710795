import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { answer, api, CallError, type Schemas } from "../api.ts";
import { tasks } from "../format.ts";
import { Problem } from "../parts/problem.tsx";
import { type Filter, queryOf } from "./filters.tsx";

type Task = Schemas["Task"];
type Format = "csv" | "jsonl";

const page = 500; // tasks of a call
const most = 1_000_000; // tasks of a file

const fields = ["id", "type", "status", "stage", "attempt", "max_attempts", "created_at",
  "finished_at", "turnaround_ms", "key", "flow_key", "user", "tags", "error_code",
  "error"] as const;

/** Returns a text as a cell of a CSV that no spreadsheet runs as a formula. */
function cell(value: unknown): string {
  const text = value === undefined ? "" : String(value);
  // Some spreadsheets also begin a cell at a semicolon or a tab.
  const safe = text.replace(/(^|[;\t\r\n])([ "]*[=+\-@\t\r])/g, "$1'$2");
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const lines: Record<Format, (t: Task) => string> = {
  csv: (t) => `${fields.map((name) => cell(t[name])).join(",")}\r\n`,
  jsonl: (t) => `${JSON.stringify(t)}\n`,
};

interface Progress {
  format: Format;
  cursor: string | undefined; // of the next page
  parts: Blob[]; // a browser keeps large ones on disk
  done: number;
}

/** Writes all tasks that match a filter to a file, page by page. A hidden one can't be begun. */
export function Export({ filter, hidden }: { filter: Filter; hidden: boolean }) {
  const done = useSignal<number | undefined>(undefined);
  const said = useSignal("");
  const error = useSignal<CallError | undefined>(undefined);
  const under = useRef<AbortController | undefined>(undefined);
  const got = useRef<Progress | undefined>(undefined);
  useEffect(() => () => { // nothing goes on, and nothing is written, after the page was left
    got.current = undefined;
    under.current?.abort();
  }, []);
  const { cursor: _, reverse: __, ...all } = filter;
  const goOn = async (p: Progress) => {
    const mine = new AbortController();
    under.current = mine;
    error.value = undefined;
    said.value = "";
    try {
      do {
        const query = { ...queryOf({ ...all, cursor: p.cursor ?? "" }), limit: page };
        if (!p.cursor) delete query.cursor;
        const list = await answer(api.GET("/v1/tasks", { signal: mine.signal, params: { query } }));
        p.parts.push(new Blob([list.data.map(lines[p.format]).join("")]));
        done.value = p.done += list.data.length;
        p.cursor = list.next_cursor;
      } while (p.cursor && p.done < most && !mine.signal.aborted);
      finish(p, p.cursor ? `The file has the newest ${tasks(p.done)}; asyncflow tasks export ` +
        "writes all" : `${tasks(p.done)} exported`);
    } catch (e) {
      if (mine.signal.aborted) finish(p, `Stopped: the file has the newest ${tasks(p.done)}`);
      else error.value = e instanceof CallError ? e : new CallError(0, { detail: String(e) });
    }
  };
  const finish = (p: Progress, text: string) => {
    if (got.current !== p) return;
    download(new Blob(p.parts), `tasks.${p.format}`);
    done.value = got.current = undefined;
    said.value = text;
  };
  const begin = (format: Format) => {
    const head = format === "csv" ? [new Blob([`${fields.join(",")}\r\n`])] : [];
    got.current = { format, cursor: undefined, parts: head, done: 0 };
    done.value = 0;
    void goOn(got.current);
  };
  return (
    <>
      {done.value === undefined && !hidden && (
        <>
          <button type="button" onClick={() => begin("csv")}>Export as CSV</button>
          <button type="button" onClick={() => begin("jsonl")}>Export as JSON lines</button>
        </>
      )}
      {done.value !== undefined && !error.value && (
        <span>
          <progress aria-label="Progress of the export" /> {tasks(done.value)} read{" "}
          <button type="button" onClick={() => under.current?.abort()}>Stop</button>
        </span>
      )}
      <span role="status">{said.value}</span>
      <Problem error={error.value} retry={() => got.current && void goOn(got.current)} />
    </>
  );
}

function download(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser may ask where to
}
