import { indented, members } from "../json.ts";

/** What the server says of a type, and doesn't take. */
const readOnly = ["name", "version", "paused_at", "pause_reason", "ramp_until", "created_at",
  "updated_at", "notifies", "searchable_from"];

/** Returns the document of a type as it can be applied again. */
export function documentOf(type: string): string {
  const own = Object.entries(members(type)).filter(([name]) => !readOnly.includes(name));
  return indented(`{${own.map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`);
}
