import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { login, session } from "../session.ts";

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
      <p>Its token has expired. Log in by a token to go on: nothing that you have typed is lost.</p>
      <LoginForm />
    </dialog>
  );
}

function LoginForm() {
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
  const here = location.pathname + location.search;
  return (
    <>
      {oidc && (
        <p><a class="button primary" href={`/console/oidc?to=${encodeURIComponent(here)}`}>
          Log in with your organisation
        </a></p>
      )}
      <form onSubmit={submit}>
        <label>
          Token
          <textarea rows={4} required autocomplete="off" spellcheck={false} value={token.value}
            onInput={(e) => (token.value = e.currentTarget.value)}
            aria-describedby="token-help" />
        </label>
        <p id="token-help" class="quiet">
          A token of the API. <code>asyncflow token create</code> makes one. It stays in a cookie that
          scripts can't read, until it expires.
        </p>
        {refusal.value && <p role="alert" class="problem">{refusal.value}</p>}
        <button type="submit" class="primary" disabled={busy.value}>Log in</button>
      </form>
    </>
  );
}
