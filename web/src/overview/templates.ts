import type { Schemas } from "../api.ts";

/** A task type to begin with. */
export interface Template {
  name: string;
  title: string;
  about: string;
  stages: Schemas["Stage"][];
  /** Stages whose tasks are sent to an endpoint. */
  sent: string[];
  context: string; // of a first task
}

/** The types that a tenant without any is offered. */
export const templates: Template[] = [
  {
    name: "receipts",
    title: "A callback with retries",
    about: "Each task is sent to a URL of yours until that answers 2xx.",
    stages: [{ name: "send", timeout: "30s", retry: { max_attempts: 5, interval: 60 } }],
    sent: ["send"],
    context: '{"order": 4711}',
  },
  {
    name: "thumbnails",
    title: "Two stages",
    about: "What the first stage answers is what the second one gets.",
    stages: [{ name: "inspect", timeout: "10s" }, { name: "resize", timeout: "5m" }],
    sent: ["inspect", "resize"],
    context: '{"image": "https://example.com/cat.png"}',
  },
  {
    name: "reviews",
    title: "Workers that ask for tasks",
    about: "Nothing is sent: workers, or people, claim tasks when they have time.",
    stages: [{ name: "judge", mode: "claim", max_processing_time: "10m" }],
    sent: [],
    context: '{"text": "Is this spam?"}',
  },
];

/** Returns a template as a file for asyncflow types apply. */
export function fileOf(t: Template): string {
  const endpoints = t.sent.map((stage) => (
    { type: t.name, stage, url: `https://worker.example.com/${stage}` }));
  return ["types:", `  - name: ${t.name}`, "    stages:", ...t.stages.flatMap((s) => item(s, 6)),
    ...(endpoints.length ? ["endpoints:"] : []), ...endpoints.flatMap((e) => item(e, 2)),
  ].join("\n");
}

/** Returns an object as an item of a list in YAML, with a line for each member. */
function item(value: object, indent: number): string[] {
  return Object.entries(value).map(([name, v], i) =>
    `${" ".repeat(indent)}${i ? "  " : "- "}${name}: ${flow(v)}`);
}

/** Returns a value in one line of YAML. Texts of templates need no quotes. */
function flow(value: unknown): string {
  if (typeof value !== "object") return String(value);
  return JSON.stringify(value).replaceAll(/"(\w+)"/g, "$1").replaceAll(/[,:]/g, "$& ");
}
