import { signal } from "@preact/signals";

const shown = signal<{ id: number; text: string }[]>([]);
let last = 0;

/** Shows a short message for some seconds. */
export function toast(text: string): void {
  const id = ++last;
  shown.value = [...shown.value.slice(-4), { id, text }];
  setTimeout(() => (shown.value = shown.value.filter((t) => t.id !== id)), 6000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status">
      {shown.value.map((t) => <p key={t.id}>{t.text}</p>)}
    </div>
  );
}
