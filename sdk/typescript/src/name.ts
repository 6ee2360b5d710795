import { invalid } from "./errors.js";

/** The header in which a worker names itself. */
export const workerHeader = "Asyncflow-Worker";

const longest = 64; // characters

/** Returns whether a text can be the name of a worker. */
export function isWorkerName(name: string): boolean {
  return name.length <= longest && /^[!-~]+$/.test(name);
}

/**
 * Returns the name of a worker by its option: false is none, undefined that of the host.
 * @throws AsyncflowError that names the option
 */
export function workerName(option: string | false | undefined): string | undefined {
  if (option === false) return undefined;
  if (option === undefined) return hostName();
  if (!isWorkerName(option)) {
    const form = `1 to ${longest} printable ASCII characters without spaces`;
    throw invalid("name", `is ${JSON.stringify(option.slice(0, 80))}; it must be ${form}`);
  }
  return option;
}

interface Runtime {
  Deno?: { hostname?: () => string };
  process?: {
    env?: Record<string, string | undefined>;
    getBuiltinModule?: (id: string) => { hostname?: () => string } | undefined;
  };
}

/** The name of the host, in a runtime that tells it. */
function hostName(): string | undefined {
  const { Deno, process } = globalThis as unknown as Runtime;
  let host: string | undefined;
  try {
    host = process?.getBuiltinModule?.("node:os")?.hostname?.() ?? Deno?.hostname?.();
  } catch {
    // Deno may not allow it.
  }
  const name = (host ?? process?.env?.["HOSTNAME"] ?? "").slice(0, longest);
  return isWorkerName(name) ? name : undefined;
}
