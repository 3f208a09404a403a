// The state of endpoints in one word, from their counts of jobs and workers.

import { callOf } from '../../../../src/client/api-caller.ts';
import type { EndpointHealth, EndpointRecord } from '../../../../src/client.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import type { Tone } from '../../parts/badge.tsx';
import { caller } from '../../platform/calls.ts';

export interface EndpointState {
  endpoint: EndpointRecord;
  /** Undefined if the key may not read it, and for endpoints without a queue. */
  health: EndpointHealth | undefined;
}

export function readHealth(endpoint: string, signal: AbortSignal): Promise<EndpointHealth> {
  return caller.json<EndpointHealth>({
    ...callOf(JOB_ROUTES.getEndpointHealth, { endpoint }),
    signal,
  });
}

export interface Judgement {
  text: string;
  tone: Tone;
  title?: string;
}

export function judge({ endpoint, health }: EndpointState): Judgement {
  if (endpoint.rollout?.state === 'FAILED') {
    return { text: 'Rollout failed', tone: 'bad', title: endpoint.rollout.reason ?? '' };
  }
  if (!health) return { text: 'Ready', tone: 'plain' };
  const { jobs, workers } = health;
  const connected = workers.idle + workers.running;
  if (jobs.inQueue > 0 && connected === 0) {
    return { text: 'No worker', tone: 'bad', title: 'Jobs wait, and no worker is connected' };
  }
  if (jobs.inQueue > 0) return { text: 'Waiting', tone: 'warn', title: 'Jobs wait for a worker' };
  if (jobs.inProgress > 0) return { text: 'Running', tone: 'busy' };
  return connected > 0 ? { text: 'Ready', tone: 'good' } : { text: 'Idle', tone: 'plain' };
}
