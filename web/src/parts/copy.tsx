import { useSignal } from "@preact/signals";

/** A button that copies a text. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const done = useSignal(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    done.value = true;
    setTimeout(() => (done.value = false), 2000);
  };
  return (
    <button type="button" class="small" onClick={() => void copy()}>
      {done.value ? "Copied" : label}
    </button>
  );
}
