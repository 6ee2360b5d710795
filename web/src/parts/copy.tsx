import { useSignal } from "@preact/signals";

interface CopyProps {
  text: string;
  label?: string;
  /** What is copied: the rest of the button's name, for screen readers. */
  of?: string;
}

/** A button that copies a text, and says whether that has worked. */
export function Copy({ text, label = "Copy", of }: CopyProps) {
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
  const shown = said.value || label;
  return (
    <button type="button" class="small" aria-label={of && `${shown} ${of}`}
      onClick={() => void copy()}>
      {shown}
    </button>
  );
}
