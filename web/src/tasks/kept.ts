import { session } from "../session.ts";

/** Returns what this browser keeps under a name for the tenant; undefined: nothing, or no JSON. */
export function kept(name: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(nameOf(name)) ?? "null");
  } catch {
    return undefined; // a browser may refuse to keep anything
  }
}

/** Keeps something in this browser for the tenant. */
export function keep(name: string, value: unknown): void {
  try {
    localStorage.setItem(nameOf(name), JSON.stringify(value));
  } catch { /* it counts until the page is left */ }
}

const nameOf = (name: string) => `asyncflow ${session.peek()?.tenant ?? ""} ${name}`;

/** Returns the texts in a list that was kept, at most some. */
export function textsOf(list: unknown, most: number): string[] {
  if (!Array.isArray(list)) return [];
  return list.filter((one) => typeof one === "string").slice(0, most);
}

const most = 500; // pages to go back

/** The cursor of the page before, by that of a page; of this visit. */
const before = new Map<string, string>();

/** Remembers that a page came after another one. */
export function came(page: string, after: string): void {
  before.set(page, after);
  const oldest = before.keys().next().value;
  if (before.size > most && oldest !== undefined) before.delete(oldest);
}

/** Returns the cursor of the page before one; undefined: it isn't known. */
export const pageBefore = (page: string): string | undefined => before.get(page);
