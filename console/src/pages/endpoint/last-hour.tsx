// The jobs of the last hour at an endpoint as a small drawing: a bar for every two minutes, with its failures in red.
import { callOf } from '../../../../src/client/api-caller.ts';
import type { EndpointSeriesRecord } from '../../../../src/wire/resources/activity.ts';
import { ACTIVITY_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { caller } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';

const HOUR_MS = 3_600_000;
const STEP_MS = 120_000;
const EVERY_MS = 60_000;

const SIZE = { width: 120, height: 22 } as const;

export function LastHour({ id }: { id: string }) {
  const { data } = usePolled({
    key: `last hour ${id}`,
    load: (signal) =>
      caller.json<EndpointSeriesRecord>({
        ...callOf(ACTIVITY_ROUTES.getEndpointSeries, { endpoint: id }),
        query: { from: Date.now() - HOUR_MS, step: STEP_MS },
        signal,
      }),
    everyMs: EVERY_MS,
  });
  const bars = (data?.points ?? []).map(({ completed, failed, timedOut }) => {
    const bad = failed + timedOut;
    return { all: completed + bad, bad };
  });
  const most = Math.max(1, ...bars.map(({ all }) => all));
  const total = bars.reduce((sum, { all }) => sum + all, 0);
  const width = SIZE.width / Math.max(1, bars.length);
  const draw = (count: number, index: number) => {
    const height = Math.max(1, (count / most) * SIZE.height);
    const x = index * width;
    return count === 0 ? '' : `M${x} ${SIZE.height}v${-height}h${width - 1}v${height}z`;
  };
  const text = `${total.toLocaleString()} ended; most in two minutes: ${most.toLocaleString()}`;
  if (total === 0) return <>–</>;
  return (
    <svg class="last-hour" role="img" aria-label={text} {...SIZE}>
      <title>{text}</title>
      <path d={bars.map(({ all }, index) => draw(all, index)).join('')} />
      <path class="bad" d={bars.map(({ bad }, index) => draw(bad, index)).join('')} />
    </svg>
  );
}
