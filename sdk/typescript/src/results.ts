import { invalid } from "./errors.js";
import type { ChildResult, ChildResults } from "./types.js";

/** The context of the stage after a fan-out. Read its results by task.outputs or task.settled. */
export interface Joined {
  /** Of all children. */
  count: number;
  succeeded: number;
  failed: number;
  cancelled: number;
  results?: unknown[];
  /** Instead of results over 1 MiB. */
  results_url?: string;
}

/** Reads the page of results from an index on. */
type ReadPage = (url: string, from: number) => Promise<ChildResults>;

/** Yields the results of a context: those in it, or those of all pages. */
export async function* resultsOf(
  context: unknown,
  read: ReadPage,
  settled: boolean,
): AsyncGenerator<unknown, void> {
  const { results, results_url: url } = (context ?? {}) as Partial<Joined>;
  if (!url) return yield* results ?? [];
  for (let from: number | undefined = 0; from !== undefined;) {
    const page: ChildResults = await read(url, from);
    yield* settled ? page.results : page.results.map((r: ChildResult) => r.output ?? null);
    if (page.next !== undefined && page.next <= from)
      throw invalid("results", `go on with ${page.next} after ${from}`);
    from = page.next;
  }
}

const pageAddress = /(\/v1\/tasks\/[a-z][a-z0-9_-]*\.\d+\.\d+\/results)(?:\?([^#]*))?$/;

/**
 * Returns the address of a page of results. It is where reports go, the URL of a callback: a
 * context is what somebody has submitted, and the token is for asyncflow only.
 */
export function resultsAddress(callback: string, url: string, from: number): string {
  const [base, rest] = callback.split("/v1/callbacks/");
  const [, stored, query] = pageAddress.exec(url) ?? [];
  if (rest === undefined || stored === undefined)
    throw invalid("results_url", `is "${url}", which is no address of results`);
  const params = new URLSearchParams(query);
  params.set("from", String(from));
  return `${base}${stored}?${params}`;
}
