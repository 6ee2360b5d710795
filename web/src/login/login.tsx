import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Manual } from "../parts/manual.tsx";
import { Title } from "../parts/title.tsx";
import { announceLogin, login, session } from "../session.ts";

/** The form to log in: a page, or over a page whose session has ended. */
export function Login({ over = false }: { over?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (over) dialog.current?.showModal();
  }, [over]);
  if (!over) {
    return (
      <main class="login">
        <h1>{session.value?.instance?.name || "asyncflow"}</h1>
        <LoginForm />
      </main>
    );
  }
  return (
    <dialog ref={dialog} aria-labelledby="expired" onClose={() => dialog.current?.showModal()}>
      <h2 id="expired">Your session has ended</h2>
      <p>Its token has expired. Log in to go on: nothing that you have typed is lost.</p>
      <LoginForm over />
    </dialog>
  );
}

/** Where a login at the issuer ends that began in another tab. */
export const loggedInPage = "/console/logged-in";

/** Says that the tab from which the login began goes on. */
export function LoggedIn() {
  useEffect(announceLogin, []);
  return (
    <>
      <Title text="You are logged in" doc="console.md#login-at-an-issuer" />
      <p>Close this tab, and go on in the one that you came from.</p>
    </>
  );
}

function LoginForm({ over = false }: { over?: boolean }) {
  const token = useSignal("");
  const refusal = useSignal("");
  const busy = useSignal(false);
  const submit = async (e: Event) => {
    e.preventDefault();
    busy.value = true;
    try {
      refusal.value = await login(token.value);
    } catch {
      refusal.value = "the server can't be reached";
    }
    busy.value = false;
  };
  const oidc = session.value?.login?.oidc;
  const to = over ? loggedInPage : location.pathname + location.search;
  return (
    <>
      {oidc && (
        <p>
          <a class="button primary" href={`/console/oidc?to=${encodeURIComponent(to)}`}
            target={over ? "_blank" : undefined}>
            Log in with your organisation{over && ", in another tab"}
          </a>
        </p>
      )}
      <form onSubmit={submit}>
        <label>
          Token
          <textarea rows={4} required autocomplete="off" spellcheck={false} value={token.value}
            onInput={(e) => (token.value = e.currentTarget.value)}
            aria-describedby="token-help" />
        </label>
        <p id="token-help" class="quiet">
          A token of the API. <code>asyncflow token create</code> makes one. It stays in a cookie
          that scripts can't read, until it expires.{" "}
          <Manual page="console.md#login" text="Docs" label="Docs: how to log in" />
        </p>
        {refusal.value && <p role="alert" class="problem">{refusal.value}</p>}
        <button type="submit" class="primary" disabled={busy.value}>Log in</button>
      </form>
    </>
  );
}
