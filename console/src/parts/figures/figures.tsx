// A row of figures, each with its name.
import type { ComponentChildren } from 'preact';

export interface Figure {
  name: string;
  value: ComponentChildren;
  /** A second, quieter line. */
  note?: string | undefined;
  isBad?: boolean;
}

export function Figures({ figures }: { figures: readonly Figure[] }) {
  return (
    <dl class="figures">
      {figures.map(({ isBad, name, note, value }) => (
        <div key={name} class={isBad ? 'bad' : undefined}>
          <dt>{name}</dt>
          <dd>
            {value}
            {note && <small>{note}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
}
