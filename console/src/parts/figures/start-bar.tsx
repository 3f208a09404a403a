// Where the seconds of a start went: a bar of its parts, and the same in words.
import { listStartParts, type StartParts } from '../../../../src/wire/job/attempt.ts';
import { sayDuration } from '../time.tsx';

export function StartBar({ parts }: { parts: StartParts }) {
  const listed = listStartParts(parts);
  return (
    <span class="start">
      <span class="start-bar" aria-hidden="true">
        {listed.map(({ ms, name }) => (
          <span key={name} class={nameClass(name)} style={{ flexGrow: ms }} />
        ))}
      </span>
      <ul class="start-parts" aria-label="Parts of the start">
        {listed.map(({ ms, name }) => (
          <li key={name}>
            <span class={nameClass(name)} aria-hidden="true" />
            {name} {sayDuration(ms)}
          </li>
        ))}
      </ul>
    </span>
  );
}

function nameClass(part: string): string {
  return `part ${part.replace(' ', '-')}`;
}
