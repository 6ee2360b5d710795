import { Copy } from "./copy.tsx";

/** A task to submit. */
interface NewTask {
  type: string;
  /** As JSON. */
  context: string;
  /** All else, by the names of the API. */
  options: Record<string, unknown>;
}

/** Reports whether a text is a name that no shell takes for anything else: a URL may hold any. */
const isName = (text: string): boolean => /^[a-z0-9][\w.-]*$/i.test(text);

/** Characters that a terminal may take for keys when a command is pasted. */
const control = /[\0-\x1f\x7f-\x9f]/;

/** Buttons to copy what submits a task: by curl and, unless it can't say all, by asyncflow. */
export function Commands({ type, context, options }: NewTask) {
  const given = Object.entries(options).filter(([, v]) => v !== undefined && v !== "");
  const members = given.map(([name, v]) => `,"${name}":${JSON.stringify(v)}`).join("");
  const body = `{"type":${JSON.stringify(type)},"context":${context}${members}}`;
  const curl = `curl -X POST ${location.origin}/v1/tasks ` +
    `-H "Authorization: Bearer $ASYNCFLOW_TOKEN" ` +
    `-H 'Content-Type: application/json' --data-binary @- ${here(body)}`;
  const flags = given.flatMap(([name, v]) => flagsOf(name, v)).map((flag) => ` ${flag}`).join("");
  const cli = `asyncflow tasks submit${flags} ${type} - ${here(context)}`;
  const said = typeof options.priority !== "object" && isName(type) && !control.test(flags);
  return (
    <>
      <Copy text={curl} label="Copy as curl" />
      {said && <Copy text={cli} label="Copy as CLI" />}
    </>
  );
}

/** Returns the flags of asyncflow tasks submit that say a member of a task. */
function flagsOf(name: string, value: unknown): string[] {
  const flag = `--${name.replaceAll("_", "-")}=`;
  if (Array.isArray(value)) return value.map((one) => flag + quote(String(one)));
  if (typeof value === "object" && value !== null) {
    return Object.entries(value).map(([k, v]) => flag + quote(`${k}=${v}`));
  }
  return [flag + quote(String(value))];
}

/**
 * Returns a JSON text as the standard input of a command: as an argument, a long one is too long.
 * None of its lines can be END, since that would not be JSON.
 */
function here(json: string): string {
  const plain = json.replace(/[\x7f-\x9f]/g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`);
  return `<<'END'\n${plain}\nEND\n`;
}

/** Returns a text as one word of a shell. */
function quote(text: string): string {
  return /^[\w.:-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
