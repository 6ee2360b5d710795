interface ManualProps {
  /** Below docs, with the place in it: alerts.md#node_gone. */
  page: string;
  text: string;
  /** What a screen reader says, where the text alone doesn't say what it is about. */
  label?: string;
  kind?: string; // the class
}

/** A link to a page of the documentation, in a tab of its own. */
export function Manual({ page, text, label, kind }: ManualProps) {
  return (
    <a href={`https://github.com/asyncflow/asyncflow/blob/main/docs/${page}`} target="_blank"
      rel="noreferrer" aria-label={label} class={kind}>{text}</a>
  );
}
