import type { Client } from "openapi-fetch";
import type { paths } from "../../sdk/typescript/src/api.gen.ts";
import { session } from "./session.ts";

/** What the calls of the console say of a request. Their types are those of openapi-fetch. */
interface Options {
  params?: {
    path?: Record<string, string | number>;
    query?: Record<string, unknown>;
    header?: Record<string, string | undefined>;
  };
  body?: unknown;
  /** Makes the text of a body whose numbers must keep all their digits. */
  bodySerializer?: (body: unknown) => string;
  parseAs?: "text" | "stream";
  signal?: AbortSignal;
}

async function call(method: string, path: string, o: Options = {}) {
  const { path: names = {}, query = {}, header = {} } = o.params ?? {};
  const headers = new Headers();
  const set = (name: string, value: string | undefined) => {
    if (value !== undefined) headers.set(name, value);
  };
  for (const [name, value] of Object.entries(header)) set(name, value);
  // The server refuses a call if another caller has logged in since this page was loaded.
  set("Asyncflow-Session", session.peek()?.id);
  const has = o.body !== undefined;
  if (has) headers.set("Content-Type", "application/json");
  const search = new URLSearchParams();
  for (const [name, values] of Object.entries(query)) {
    for (const value of [values].flat()) if (value != null) search.append(name, String(value));
  }
  const url = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(names[name]!));
  const response = await fetch(search.size ? `${url}?${search}` : url, { method, headers,
    signal: o.signal ?? null,
    body: has ? o.bodySerializer?.(o.body) ?? JSON.stringify(o.body) : null });
  if (!response.ok) return { error: await response.text(), response };
  if (o.parseAs === "stream") return { data: response.body, response };
  const text = await response.text();
  return { data: o.parseAs || !text ? text : JSON.parse(text) as unknown, response };
}

/** The public API, with the session's cookie. */
export const api = Object.fromEntries(["GET", "PUT", "POST", "PATCH", "DELETE"].map((method) =>
  [method, (path: string, o?: Options) => call(method, path, o)])) as unknown as Client<paths>;
