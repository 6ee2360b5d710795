import { useSignal } from "@preact/signals";

/** A button that copies a text, and says whether that has worked. */
export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const said = useSignal("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text); // over plain http there is no clipboard
      said.value = "Copied";
    } catch {
      said.value = "Not copied: the browser refuses";
    }
    setTimeout(() => (said.value = ""), 2000);
  };
  return (
    <button type="button" class="small" onClick={() => void copy()}>
      {said.value || label}
    </button>
  );
}
