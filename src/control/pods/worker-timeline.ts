// The timeline of a worker, in the record of its pod: its starts, and how its models left the GPU and came back. Pure.
import type { WorkerParking, WorkerStart } from '../../wire/link/worker-link.ts';
import type { WorkerEvent } from '../../wire/resources/pod.ts';
import type { PodState } from './pod-state.ts';

const MAX_EVENTS = 20;
/** A model process that starts so soon after another one is left out, ms: a handler may start one for each job. */
const MODEL_GAP_MS = 10_000;

type TimedEvent = WorkerEvent & { at: number };

/** How a worker has left its GPUs. */
export interface Parked {
  /** When it was asked to, Unix ms. */
  since: number;
  /** Of GPU memory that came free; 0: its models have ended. */
  bytes: number;
  way: WorkerParking['way'] | undefined;
}

/** The worker says the same start again, also with its first call. A later one of the worker had no queue and no install. */
export function noteStart(pod: PodState, { at, of, parts }: WorkerStart): PodState {
  const { timeline = [] } = pod;
  const event = of === 'worker' ? 'started' : 'model_started';
  const known = timeline.findIndex((each) => each.at === at && each.event === event);
  const isFirst = known < 0 ? !timeline.some((each) => each.event === 'started') : true;
  const { installMs: _install, queueMs: _queue, ...own } = parts;
  const noted = { at, event, parts: isFirst ? parts : own } as const;
  if (known < 0) return add(pod, noted);
  return { ...pod, timeline: timeline.with(known, noted) };
}

/** Whether the timeline lacks it, or its first call. */
export function isNewStart({ timeline = [] }: PodState, { at, of, parts }: WorkerStart): boolean {
  const known = timeline.findLast((each) => each.at === at && each.parts);
  if (known) return known.parts?.firstCallMs !== parts.firstCallMs;
  // The worker still tells of one that later events have displaced.
  const [, oldest] = timeline;
  if (timeline.length >= MAX_EVENTS && oldest && at < oldest.at) return false;
  const last = timeline.findLast(({ event }) => event === 'model_started');
  return of === 'worker' || last === undefined || at - last.at >= MODEL_GAP_MS;
}

export function noteParked(pod: PodState, { bytes, since, way }: Parked, now: number): PodState {
  const at = Math.min(since, now);
  const how = describeWay(bytes, way);
  return add(
    pod,
    { at, event: 'parking' },
    { at: now, event: 'parked', ms: now - at, bytes, ...how },
  );
}

export function noteWaking(pod: PodState, now: number): PodState {
  return add(pod, { at: now, event: 'waking' });
}

export function noteWoken(pod: PodState, now: number): PodState {
  const { timeline = [] } = pod;
  const since = timeline.findLast(({ event }) => event === 'waking')?.at ?? now;
  const { bytes, way } = timeline.findLast(({ event }) => event === 'parked') ?? {};
  const how = { ...(bytes !== undefined && { bytes }), ...(way && { way }) };
  return add(pod, { at: now, event: 'woken', ms: Math.max(0, now - since), ...how });
}

function describeWay(bytes: number, way: Parked['way']): Pick<WorkerEvent, 'way'> {
  if (bytes === 0) return { way: 'cold' };
  return way ? { way } : {};
}

function add(pod: PodState, ...events: TimedEvent[]): PodState {
  const timeline = [...(pod.timeline ?? []), ...events].toSorted((a, b) => a.at - b.at);
  const kept = timeline.slice(-MAX_EVENTS);
  // Turns on a GPU are many; the start says most.
  const start = timeline.find(({ event }) => event === 'started');
  return { ...pod, timeline: start && !kept.includes(start) ? [start, ...kept.slice(1)] : kept };
}
