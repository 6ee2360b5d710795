/**
 * Returns the link of a trace by a template with {trace_id}; "" if there is none. The trace is a
 * W3C traceparent.
 */
export function traceURL(template: string | undefined, trace: string): string {
  const id = /^00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$/.exec(trace)?.[1];
  if (!template || !id || !/^https?:\/\//i.test(template)) return "";
  return template.replaceAll("{trace_id}", id);
}
