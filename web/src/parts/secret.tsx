import { Copy } from "./copy.tsx";
import { Dialog } from "./dialog.tsx";

interface SecretProps {
  secret: string;
  /** What the text is: a secret, or a public key. */
  kind: "secret" | "public key";
  close: () => void;
}

/** Shows a new secret. No call returns it again. */
export function NewSecret({ secret, kind, close }: SecretProps) {
  return (
    <Dialog title={`The new ${kind}`} close={close}>
      <p>
        {kind === "secret"
          ? "Give it to the worker now: it is not shown again."
          : "The worker verifies signatures with it. The private key stays here."}
      </p>
      <p class="secret"><code>{secret}</code> <Copy text={secret} /></p>
      <p class="buttons"><button type="button" onClick={close}>Close</button></p>
    </Dialog>
  );
}
