// The story of a job as a list.
import { Badge } from '../../parts/badge.tsx';
import { Time } from '../../parts/time.tsx';
import type { TimelineEvent } from './timeline.ts';

export function TimelineList({ events }: { events: readonly TimelineEvent[] }) {
  return (
    <ol class="timeline" aria-label="Timeline">
      {events.map(({ at, note, text, tone }) => (
        <li key={`${at} ${text}`}>
          <span class="when">
            <Time at={at} as="clock" />
          </span>
          <span>
            <Badge text={text} tone={tone} />
            {note && <small class="reason">{note}</small>}
          </span>
        </li>
      ))}
    </ol>
  );
}
