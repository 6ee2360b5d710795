import type { ComponentChildren } from "preact";
import { useContext, useEffect, useRef } from "preact/hooks";
import { Refused } from "./field.tsx";

/** The part of a form that few need, closed at first. It opens for what was refused in it. */
export function More({ children }: { children: ComponentChildren }) {
  const part = useRef<HTMLDetailsElement>(null);
  const refused = useContext(Refused);
  const open = () => {
    if (part.current) part.current.open = true;
  };
  useEffect(() => {
    if (part.current?.querySelector(".bad")) open();
  }, [refused]);
  return (
    <details ref={part} class="more" onInvalidCapture={open}>
      <summary>More</summary>
      {children}
    </details>
  );
}
