import { signal } from "@preact/signals";

/** Who is logged in, and at which instance; see GET /console/session. */
export interface Session {
  logged_in: boolean;
  kind?: "tenant" | "operator";
  tenant?: string;
  subject?: string;
  scopes?: string[];
  expires_at?: string;
  instance?: { name?: string; color?: string };
  version?: string;
  dev?: boolean;
  login?: { token: boolean; oidc: boolean };
}

/** undefined until it is first known. */
export const session = signal<Session | undefined>(undefined);

/** True if the session ended under an open page: the page stays, below the form to log in. */
export const expired = signal(false);

export async function loadSession(): Promise<void> {
  const response = await fetch("/console/session");
  session.value = (await response.json()) as Session;
  if (session.value.logged_in) expired.value = false;
}

/** Tells that a call was refused for want of a session. */
export function sessionEnded(): void {
  if (session.value?.logged_in) expired.value = true;
}

/** Logs in by a token. Returns why that was refused; "": it wasn't. */
export async function login(token: string): Promise<string> {
  const response = await fetch("/console/login", {
    method: "POST",
    headers: { Authorization: `Bearer ${token.trim()}` },
  });
  if (!response.ok) {
    const problem = (await response.json().catch(() => ({}))) as { detail?: string };
    return problem.detail ?? `the server answered ${response.status}`;
  }
  await loadSession();
  return "";
}

export async function logout(): Promise<void> {
  await fetch("/console/logout", { method: "POST" });
  location.assign("/console");
}

/** A scope of a tenant, or operator: what only operators may. */
export type Scope = "read" | "submit" | "operate" | "manage" | "operator";

/** Reports whether the session's token has a scope. */
export function may(scope: Scope): boolean {
  if (scope === "operator") return isOperator();
  return session.value?.scopes?.includes(scope) ?? false;
}

export function isOperator(): boolean {
  return session.value?.kind === "operator";
}
