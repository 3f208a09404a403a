// The state of an endpoint, which the platform judges, in the words and tones of all pages.
import type { EndpointRecord } from '../../../../src/client.ts';
import type { EndpointOverview } from '../../../../src/wire/resources/activity.ts';
import type { Tone } from '../../parts/badge.tsx';

interface Judgement {
  text: string;
  tone: Tone;
  title?: string;
}

const JUDGEMENTS: Readonly<Record<EndpointOverview['state'], Judgement>> = {
  unreachable: { text: 'Unreachable', tone: 'bad', title: 'No node answers for the endpoint' },
  blocked: { text: 'No workers', tone: 'bad', title: 'Jobs wait, and no worker is connected' },
  rollout_failed: { text: 'Rollout failed', tone: 'bad' },
  failing: { text: 'Failing', tone: 'warn', title: '10 % or more of the last hour’s jobs failed' },
  paused: { text: 'Paused', tone: 'warn', title: 'No job starts until it is resumed' },
  waiting: { text: 'Waiting', tone: 'warn', title: 'Jobs wait for a worker' },
  running: { text: 'Running', tone: 'busy' },
  ready: { text: 'Ready', tone: 'good' },
  idle: { text: 'Idle', tone: 'plain' },
};

/** A key that may not read the endpoint's jobs does not get its state, only that of its rollout. */
export function judge(
  state: EndpointOverview['state'] | undefined,
  record: EndpointRecord | undefined,
): Judgement | undefined {
  const isFailed = record?.rollout?.state === 'FAILED';
  if (state) return JUDGEMENTS[state];
  return isFailed ? JUDGEMENTS.rollout_failed : undefined;
}
