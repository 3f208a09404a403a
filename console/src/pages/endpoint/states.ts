// The state of endpoints in one word, from their counts of jobs and workers.

import { callOf } from '../../../../src/client/api-caller.ts';
import type { EndpointHealth, EndpointRecord } from '../../../../src/client.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes.ts';
import type { Tone } from '../../parts/badge.tsx';
import { caller } from '../../platform/calls.ts';
import { may } from '../../platform/session.ts';

export interface EndpointState {
  endpoint: EndpointRecord;
  /** Undefined if the key may not read it, and for endpoints without a queue. */
  health: EndpointHealth | undefined;
}

/** Requests under way at a time: browsers open no more connections to one address. */
const AT_ONCE = 6;

export async function loadStates(
  endpoints: readonly EndpointRecord[],
  signal: AbortSignal,
): Promise<EndpointState[]> {
  const states: EndpointState[] = [];
  for (let start = 0; start < endpoints.length; start += AT_ONCE) {
    const some = endpoints.slice(start, start + AT_ONCE);
    states.push(...(await Promise.all(some.map((endpoint) => loadState(endpoint, signal)))));
  }
  return states;
}

async function loadState(endpoint: EndpointRecord, signal: AbortSignal): Promise<EndpointState> {
  const isReadable = endpoint.type === 'QUEUE' && may('jobs:read', endpoint.id);
  return { endpoint, health: isReadable ? await readHealth(endpoint.id, signal) : undefined };
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

const TROUBLE: Readonly<Record<Tone, number>> = { bad: 3, warn: 2, busy: 1, good: 0, plain: 0 };

export function sortByTrouble(states: readonly EndpointState[]): EndpointState[] {
  const rank = (state: EndpointState) => TROUBLE[judge(state).tone];
  return states.toSorted(
    (a, b) => rank(b) - rank(a) || a.endpoint.name.localeCompare(b.endpoint.name),
  );
}
