import { Copy } from "../parts/copy.tsx";
import { withLines } from "../parts/json.tsx";

interface ErrorTextProps {
  text: string;
  of: string; // what it is, for the button that copies it
}

/** An error as text. A stack trace within JSON has a line for each of its lines, too. */
export function ErrorText({ text, of }: ErrorTextProps) {
  const lines = text.split("\\n").length;
  return (
    <div class="error">
      <Copy text={text} of={of} />
      <pre class="problem">{lines > 2 ? withLines(text) : text}</pre>
    </div>
  );
}
