import { signal } from "@preact/signals";

/** Who is logged in, and at which instance; see GET /console/session. */
export interface Session {
  logged_in: boolean;
  /** Of the caller: another one may log in in another tab. */
  id?: string;
  kind?: "tenant" | "operator";
  tenant?: string;
  subject?: string;
  scopes?: string[];
  expires_at?: string;
  instance?: { name?: string; color?: string };
  version?: string;
  dev?: boolean;
  /** The link of a trace, with {trace_id} in place of the trace's id. */
  trace_url?: string;
  login?: { token: boolean; oidc: boolean };
}

/** undefined until it is first known. */
export const session = signal<Session | undefined>(undefined);

/** True if the session ended under an open page: the page stays, below the form to log in. */
export const expired = signal(false);

/** Reads whose session this is. Throws if that can't be known now. */
export async function loadSession(): Promise<void> {
  const response = await fetch("/console/session");
  if (!response.ok) throw new Error(await reason(response));
  const now = (await response.json()) as Session;
  if (!now.logged_in && session.value?.logged_in) {
    expired.value = true; // what it was stays for the page below the form to log in
    return;
  }
  session.value = now;
  if (now.logged_in) expired.value = false;
}

async function reason(response: Response): Promise<string> {
  const problem = (await response.json().catch(() => ({}))) as { detail?: string };
  return problem.detail ?? `the server answered ${response.status}`;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && session.value) void loadSession().catch(() => {});
});

/** Tells the other tabs that a login has ended here. */
export function announceLogin(): void {
  logins.postMessage("");
}

const logins = new BroadcastChannel("asyncflow-login");
logins.onmessage = () => {
  if (expired.value) void loadSession().catch(() => {});
};

/** Notes that a call was refused for want of a session. */
export function sessionEnded(): void {
  if (session.value?.logged_in) expired.value = true;
}

/** Logs in by a token. Returns why that was refused; "": it wasn't. */
export async function login(token: string): Promise<string> {
  const response = await fetch("/console/login", {
    method: "POST",
    // A token has no spaces; what is pasted may have line breaks in it.
    headers: { Authorization: `Bearer ${token.replace(/\s+/g, "")}` },
  });
  if (!response.ok) return reason(response);
  await loadSession();
  return "";
}

/** Logs out, and goes to the form to log in. Throws if the session may still be there. */
export async function logout(): Promise<void> {
  const response = await fetch("/console/logout", { method: "POST" });
  if (!response.ok) throw new Error(await reason(response));
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
