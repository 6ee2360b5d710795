import { effect, signal } from "@preact/signals";

/** The time in ms, once a second while the tab can be seen. */
export const now = signal(Date.now());

/** False while the viewer has paused the page, or can't see it. */
export const live = signal(!document.hidden);

/** True while the viewer has paused the page by its button. */
export const paused = signal(false);

/** False while the viewer can't see the page. */
export const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => {
  visible.value = !document.hidden;
});
effect(() => {
  live.value = visible.value && !paused.value;
});
effect(() => {
  if (!visible.value) return;
  now.value = Date.now();
  const timer = setInterval(() => (now.value = Date.now()), 1000);
  return () => clearInterval(timer);
});
