// The states of flows and of their jobs in words and tones, and their counts as one sentence.
import type { FlowJob, FlowSummary } from '../../../../src/client.ts';
import type { Tone } from '../../parts/badge.tsx';
import { JOB_TONES, sayStatus } from '../../parts/job/job-status.ts';

type State = FlowJob['state'];

const WORDS: Readonly<Record<State, { text: string; tone: Tone }>> = {
  FAILED: describe('FAILED'),
  TIMED_OUT: describe('TIMED_OUT'),
  REMOVED: { text: 'Removed', tone: 'bad' },
  IN_PROGRESS: describe('IN_PROGRESS'),
  IN_QUEUE: describe('IN_QUEUE'),
  WAITING: { text: 'Waits', tone: 'plain' },
  CANCELLED: describe('CANCELLED'),
  SKIPPED: { text: 'Skipped', tone: 'plain' },
  COMPLETED: describe('COMPLETED'),
};

function describe(status: keyof typeof JOB_TONES): { text: string; tone: Tone } {
  return { text: sayStatus(status), tone: JOB_TONES[status] };
}

/** The most important first. */
export const STATES = Object.keys(WORDS) as readonly State[];

export function describeState(state: State): { text: string; tone: Tone } {
  return WORDS[state];
}

const FLOWS: Readonly<Record<FlowSummary['status'], { text: string; tone: Tone }>> = {
  RUNNING: { text: 'Running', tone: 'busy' },
  COMPLETED: { text: 'Completed', tone: 'good' },
  FAILED: { text: 'Failed', tone: 'bad' },
  CANCELLED: { text: 'Cancelled', tone: 'plain' },
};

export function describeFlow({ status }: Pick<FlowSummary, 'status'>) {
  return FLOWS[status];
}

export interface StateCount {
  state: State;
  count: number;
}

/** The most important first; without states that no job has. */
export function countStates(jobs: readonly Pick<FlowJob, 'state'>[]): StateCount[] {
  const counts = Map.groupBy(jobs, ({ state }) => state);
  return STATES.flatMap((state) => {
    const count = counts.get(state)?.length ?? 0;
    return count === 0 ? [] : [{ state, count }];
  });
}

/** `2 failed, 18 completed`. */
export function sayCounts(counts: readonly StateCount[]): string {
  return counts
    .map(({ count, state }) => `${count.toLocaleString()} ${WORDS[state].text.toLowerCase()}`)
    .join(', ');
}

/** `output as image; if it fails: run`. Empty for the policy of most edges. */
export function sayEdge({ as, onFailure }: Omit<FlowJob['after'][number], 'job'>): string {
  return [
    ...(as === undefined ? [] : [`output as ${as}`]),
    ...(onFailure === 'fail' ? [] : [`if it fails: ${onFailure}`]),
  ].join('; ');
}
