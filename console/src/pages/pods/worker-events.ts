// What happened to a worker, in order, in words.
import type { PodRecord } from '../../../../src/client.ts';
import { listStartParts } from '../../../../src/wire/job/attempt.ts';
import { sayBytes } from '../../parts/bytes.ts';
import { sayDuration } from '../../parts/time.tsx';
import type { TimelineEvent } from '../../parts/timeline.tsx';

type WorkerEvent = NonNullable<PodRecord['timeline']>[number];

export function listWorkerEvents(timeline: readonly WorkerEvent[]): TimelineEvent[] {
  return timeline.map(describe);
}

function describe(entry: WorkerEvent): TimelineEvent {
  const { bytes, event, ms = 0, parts, way } = entry;
  const at = Date.parse(entry.at);
  const size = bytes ? `${sayBytes(bytes)} ` : '';
  switch (event) {
    case 'started':
      return { at, text: `Worker ready${sayTotal(entry)}`, tone: 'good', parts };
    case 'model_started':
      return { at, text: `Model process ready${sayTotal(entry)}`, tone: 'good', parts };
    case 'parking':
      return { at, text: 'Leaves its GPU', tone: 'busy' };
    case 'parked': {
      const note =
        way === 'cold'
          ? 'Its model has ended, and starts anew at the wake.'
          : `${size}left the GPU in ${sayDuration(ms)}${sayWay(way)}.`;
      return { at, text: 'Parked', tone: 'plain', note };
    }
    case 'waking':
      return { at, text: 'Gets its GPU back', tone: 'busy' };
    case 'woken': {
      const note =
        way === 'cold'
          ? `Its model started anew in ${sayDuration(ms)}.`
          : `${size}came back to the GPU in ${sayDuration(ms)}${sayWay(way)}.`;
      return { at, text: 'Awake', tone: 'good', note };
    }
  }
}

function sayTotal({ parts = {} }: WorkerEvent): string {
  const { firstCallMs: _firstCall, ...start } = parts;
  const total = listStartParts(start).reduce((sum, { ms }) => sum + ms, 0);
  return total === 0 ? '' : ` after ${sayDuration(total)}`;
}

export function sayWay(way: WorkerEvent['way']): string {
  if (way === 'hooks') return ', by hooks of its program';
  return way === 'driver' ? ', by the NVIDIA driver' : '';
}
