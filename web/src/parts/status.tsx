/** A status as a coloured word. */
export function Status({ status }: { status: string }) {
  return <span class={`status ${status}`}>{status}</span>;
}
