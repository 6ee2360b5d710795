import { words } from "../format.ts";

/** A status or an outcome as a coloured word, which may be another than its name. */
export function Status({ status, word }: { status: string; word?: string }) {
  return <span class={`status ${status}`}>{word ?? words(status)}</span>;
}
