import { session } from "../session.ts";
import { traceURL } from "./trace_url.ts";

/** A task's trace, with a link to it if the settings have one. */
export function Trace({ trace }: { trace: string }) {
  const link = traceURL(session.value?.trace_url, trace);
  if (!link) return <code>{trace}</code>;
  return <a href={link} target="_blank" rel="noopener noreferrer"><code>{trace}</code></a>;
}
