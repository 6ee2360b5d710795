/** Where somebody was on a page: how far down, and on which link. */
interface Place {
  top: number;
  link: string | undefined;
}

const most = 100; // pages that are remembered
const patience = 5000; // ms until a page must have loaded what it had

const places = new Map<string, Place>();

/** Keeps the scroll position and the focus of pages, for those who come back to them. */
export function keepPlaces(): void {
  history.scrollRestoration = "manual"; // a browser restores it before the page has its rows
  let waiting: AbortController | undefined;
  // A click is kept before it is followed, also that of the key Enter.
  addEventListener("click", ({ target }) => {
    waiting?.abort();
    keep(location.href, linkOf(target as Element | null));
  }, true);
  addEventListener("popstate", () => {
    waiting?.abort();
    const place = places.get(location.href);
    if (place) waiting = comeBack(place);
  });
}

/** Returns the link that a click follows: the one of its row, if it is on none. */
function linkOf(target: Element | null): string | undefined {
  const link = target?.closest("a[href]") ?? target?.closest("tr")?.querySelector("a[data-row]");
  return link?.getAttribute("href") ?? undefined;
}

function keep(page: string, link: string | undefined): void {
  places.delete(page);
  places.set(page, { top: scrollY, link });
  const oldest = places.keys().next().value;
  if (places.size > most && oldest !== undefined) places.delete(oldest);
}

/** Goes to a place as soon as the page has it, unless somebody acts before. */
function comeBack({ top, link }: Place): AbortController {
  const stop = new AbortController();
  const { signal } = stop;
  const go = () => {
    const found = link === undefined ? null :
      document.querySelector<HTMLElement>(`main a[href="${CSS.escape(link)}"]`);
    if (document.documentElement.scrollHeight < top + innerHeight) return;
    if (link !== undefined && !found) return;
    scrollTo(0, top);
    if (found) found.focus({ preventScroll: true });
    stop.abort();
  };
  const watch = new MutationObserver(go);
  signal.addEventListener("abort", () => watch.disconnect());
  watch.observe(document.body, { childList: true, subtree: true });
  for (const act of ["wheel", "touchstart", "keydown", "mousedown"]) {
    addEventListener(act, () => stop.abort(), { signal, passive: true });
  }
  setTimeout(() => stop.abort(), patience);
  requestAnimationFrame(go);
  return stop;
}
