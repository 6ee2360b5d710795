import type { Schemas } from "../api.ts";

/** Says what deliveries of a stage have of what came before, besides the context. */
export function given(d: Schemas["Deliver"]): string {
  const outputs = d.outputs ?? [];
  const parts = [
    d.input && "the input",
    outputs.length > 0 && `the latest output of ${outputs.join(", ")}`,
  ];
  return parts.filter(Boolean).join("; ");
}
