import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Refusal } from "./field.tsx";

interface SeveralProps<T> {
  title: string;
  /** What one of them is called. */
  one: string;
  /** The field of the API's document that has them all. */
  name: string;
  all: Signal<T[]>;
  make: () => T;
  fields: (one: T, index: number) => ComponentChildren;
}

/** Groups of fields of the same kind: one is added, or taken away, at a time. */
export function Several<T>({ title, one, name, all, make, fields }: SeveralProps<T>) {
  return (
    <fieldset>
      <legend>{title}</legend>
      {all.value.map((each, i) => (
        <div key={i} class="columns" role="group" aria-label={`${one} ${i + 1}`}>
          {fields(each, i)}
          <p class="buttons">
            <button type="button"
              onClick={() => (all.value = all.value.filter((other) => other !== each))}>
              Remove the {one}
            </button>
          </p>
        </div>
      ))}
      <Refusal name={name} />
      <button type="button" onClick={() => (all.value = [...all.value, make()])}>
        Add a {one}
      </button>
    </fieldset>
  );
}
