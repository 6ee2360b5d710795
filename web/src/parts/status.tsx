import { words } from "../format.ts";

/** A status or an outcome as a coloured word. */
export function Status({ status }: { status: string }) {
  return <span class={`status ${status}`}>{words(status)}</span>;
}
