// The story of a job or a worker as a list.
import type { StartParts } from '../../../src/wire/job/attempt.ts';
import { Badge, type Tone } from './badge.tsx';
import { StartBar } from './figures/start-bar.tsx';
import { Time } from './time.tsx';

export interface TimelineEvent {
  /** Unix ms. */
  at: number;
  text: string;
  tone: Tone;
  /** A second line. */
  note?: string | undefined;
  /** Where the time of a start went. */
  parts?: StartParts | undefined;
}

export function TimelineList({ events }: { events: readonly TimelineEvent[] }) {
  return (
    <ol class="timeline" aria-label="Timeline">
      {events.map(({ at, note, parts, text, tone }) => (
        <li key={`${at} ${text}`}>
          <span class="when">
            <Time at={at} as="clock" />
          </span>
          <span>
            <Badge text={text} tone={tone} />
            {note && <small class="reason">{note}</small>}
            {parts && <StartBar parts={parts} />}
          </span>
        </li>
      ))}
    </ol>
  );
}
