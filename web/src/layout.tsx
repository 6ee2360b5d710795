import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { useLocation } from "preact-iso";
import type { Page } from "./page.ts";
import { paused } from "./clock.ts";
import { Keys } from "./parts/keys.tsx";
import { toast, Toasts } from "./parts/toast.tsx";
import { logout, session } from "./session.ts";

/** The frame of all pages: the menu, who is logged in, and the page. */
export function Layout({ pages, children }: { pages: Page[]; children: ComponentChildren }) {
  const s = session.value;
  const open = useSignal(false); // the menu, in a narrow window
  const close = () => (open.value = false);
  const opener = useRef<HTMLButtonElement>(null);
  const dismiss = () => { // the focus is on a link that isn't shown any more
    if (open.value) opener.current?.focus();
    close();
  };
  return (
    <>
      <a class="skip" href="#main">Skip to the page</a>
      <header class={open.value ? "open" : ""}
        onKeyDown={(e) => { if (e.key === "Escape") dismiss(); }}
        onClick={(e) => { if ((e.target as HTMLElement).closest("a")) close(); }}>
        <a class="brand" href="/console">
          <img src="/console/assets/favicon.svg" alt="" width="24" height="24" />
          <span>{s?.instance?.name || "asyncflow"}</span>
        </a>
        <button type="button" class="opener" ref={opener} aria-expanded={open.value}
          aria-controls="pages" onClick={() => (open.value = !open.value)}>☰ Menu</button>
        <nav id="pages" aria-label="Pages">
          {pages.filter((p) => p.title).map((p) => <MenuItem key={p.path} page={p} />)}
        </nav>
        <div class="who">
          <button type="button" aria-pressed={paused.value}
            onClick={() => (paused.value = !paused.value)}
            title="The page shows what happens as it happens, unless it is paused.">
            {paused.value ? "▶" : "❚❚"}
            <span class="roomy"> {paused.value ? "Resume" : "Pause"}</span>
          </button>
          <span title={`${s?.tenant ?? ""}, scopes: ${s?.scopes?.join(", ") ?? "none"}`}>
            {s?.kind === "operator" ? "operator" : s?.tenant}
          </span>
          <button type="button" onClick={() => void leave()}>Log out</button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>{children}</main>
      <Toasts />
      <Keys />
    </>
  );
}

async function leave() {
  try {
    await logout();
  } catch (e) {
    toast(`You are still logged in: ${(e as Error).message}`);
  }
}

function MenuItem({ page }: { page: Page }) {
  const { path } = useLocation();
  const here = path === page.path || (page.path !== "/console" && path.startsWith(`${page.path}/`));
  return <a href={page.path} aria-current={here ? "page" : undefined}>{page.title}</a>;
}
