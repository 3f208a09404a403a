// What happened at an endpoint: charts of the last hour, day or week.
import { useState } from 'preact/hooks';
import { callOf } from '../../../../src/client/api-caller.ts';
import type { EndpointSeriesRecord } from '../../../../src/wire/resources/activity.ts';
import { ACTIVITY_ROUTES } from '../../../../src/wire/routes/routes.ts';
import { Chart } from '../../parts/figures/chart.tsx';
import { sayDuration } from '../../parts/time.tsx';
import { caller } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';

const HOUR_MS = 3_600_000;
/** Minutes are recorded, so that a shorter interval shows nothing new. */
const EVERY_MS = 30_000;

const SPANS = [
  { name: '1 hour', ms: HOUR_MS },
  { name: '6 hours', ms: 6 * HOUR_MS },
  { name: '1 day', ms: 24 * HOUR_MS },
  { name: '7 days', ms: 168 * HOUR_MS },
] as const;

type Point = EndpointSeriesRecord['points'][number];

export function Charts({ id, isPriced }: { id: string; isPriced: boolean }) {
  const [span, setSpan] = useState<number>(HOUR_MS);
  const { data } = usePolled({
    key: `series ${id} ${span}`,
    load: (signal) =>
      caller.json<EndpointSeriesRecord>({
        ...callOf(ACTIVITY_ROUTES.getEndpointSeries, { endpoint: id }),
        query: { from: Date.now() - span },
        signal,
      }),
    everyMs: EVERY_MS,
  });
  return (
    <section aria-label="Charts">
      <div class="chart-head">
        <h2>Activity</h2>
        <label>
          Time{' '}
          <select
            value={String(span)}
            onChange={({ currentTarget }) => setSpan(Number(currentTarget.value))}
          >
            {SPANS.map(({ ms, name }) => (
              <option key={ms} value={String(ms)}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      {data && <Plots series={data} isPriced={isPriced} />}
    </section>
  );
}

function Plots({ isPriced, series }: { series: EndpointSeriesRecord; isPriced: boolean }) {
  const { points, step } = series;
  const times = points.map(({ at }) => at);
  const line = (pick: (point: Point) => number | null) => points.map(pick);
  // Most endpoints park no worker.
  const parked = {
    name: 'Parked',
    color: '--warn',
    values: line((p) => p.workers.parked),
  } as const;
  const perSecond = (count: number) => count / (step / 1_000);
  const plain = (value: number) => value.toLocaleString(undefined, { maximumFractionDigits: 2 });
  const dollars = (value: number) => `$${plain(value)}`;
  const perHour = (cost: number) => (cost * HOUR_MS) / step;
  return (
    <div class="charts">
      <Chart
        title="Jobs per second"
        times={times}
        format={plain}
        lines={[
          { name: 'Completed', color: '--good', values: line((p) => perSecond(p.completed)) },
          {
            ...{ name: 'Failed', color: '--bad' },
            values: line((p) => perSecond(p.failed + p.timedOut)),
          },
        ]}
      />
      <Chart
        title="Queue"
        times={times}
        format={plain}
        lines={[
          { name: 'Queued', color: '--warn', values: line((p) => p.queued) },
          { name: 'Running', color: '--accent', values: line((p) => p.running) },
        ]}
      />
      <Chart
        title="Run time"
        times={times}
        format={sayDuration}
        lines={[
          { name: 'p50', color: '--accent', values: line((p) => p.executionMs?.p50 ?? null) },
          { name: 'p95', color: '--muted', values: line((p) => p.executionMs?.p95 ?? null) },
        ]}
      />
      <Chart
        title="Wait"
        times={times}
        format={sayDuration}
        lines={[
          { name: 'Oldest', color: '--warn', values: line((p) => p.oldestWaitMs) },
          { name: 'p50', color: '--accent', values: line((p) => p.waitMs?.p50 ?? null) },
          { name: 'p95', color: '--muted', values: line((p) => p.waitMs?.p95 ?? null) },
        ]}
      />
      <Chart
        title="Workers"
        times={times}
        format={plain}
        lines={[
          { name: 'Busy', color: '--good', values: line((p) => p.workers.running) },
          { name: 'Idle', color: '--accent', values: line((p) => p.workers.idle) },
          {
            ...{ name: 'Starting', color: '--muted' },
            values: line((p) => p.workers.starting + p.workers.draining),
          },
          ...(parked.values.some((count) => count) ? [parked] : []),
        ]}
      />
      {isPriced && (
        <Chart
          title="Cost per hour"
          times={times}
          format={dollars}
          lines={[{ name: 'Cost', color: '--accent', values: line((p) => perHour(p.cost)) }]}
        />
      )}
    </div>
  );
}
