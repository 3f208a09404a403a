// The states that a pod can be in and what can be seen of its container, by name, and what becomes of
// them in a few words.

import type { PodStep } from '../../../src/control/pods/pod-lifecycle.ts';
import { openMeter } from '../../../src/control/pods/pod-meter.ts';
import type { PodState } from '../../../src/control/pods/pods.ts';
import type { Container } from '../../../src/engine/engine.ts';

export const NOW = 1_000_000;
/** Start of the run whose end has been dealt with. */
const KNOWN_RUN = NOW - 5_000;

const base: PodState = {
  id: 'pod_1',
  userId: 'ada',
  endpointId: null,
  spec: {
    ...{ name: 'a', image: 'busy', args: '', handler: null, disk: 20, ports: [], env: {} },
    ...{ registry: null, mounts: {}, cloud: 'SECURE', dataCenterId: null },
    ...{ globalNetworking: false, template: null, templateVersion: null, locked: false },
  },
  ...{ status: 'PROVISIONING', desired: 'running', generation: 2, stopping: false },
  ...{ endedRun: KNOWN_RUN, gpus: [], failures: 0, retryAt: null, reason: null, removed: false },
  ...{ meter: openMeter(1), createdAt: 1, startedAt: null, endedAt: null },
};

function make(fields: Partial<PodState>): PodState {
  return { ...base, ...fields };
}

const wantsGpu = { spec: { ...base.spec, gpu: { id: 'H200', count: 1 } } };
const startedAt = NOW - 2_000;
const exited = { status: 'EXITED', desired: 'stopped', endedAt: NOW - 1 } as const;

export const states = {
  provisioning: make({}),
  waitingForGpu: make(wantsGpu),
  provisioningGpu: make({ ...wantsGpu, gpus: ['g1'] }),
  starting: make({ status: 'STARTING' }),
  restartsLater: make({ status: 'STARTING', failures: 1, retryAt: NOW + 500, reason: 'crashed' }),
  restartsNow: make({ status: 'STARTING', failures: 1, retryAt: NOW, reason: 'crashed' }),
  /** A start came before the container had ended. */
  startingWhileStopping: make({ status: 'STARTING', stopping: true }),
  running: make({ status: 'RUNNING', startedAt }),
  runningGpu: make({ ...wantsGpu, gpus: ['g1'], status: 'RUNNING', startedAt }),
  failedTwice: make({ status: 'RUNNING', startedAt, failures: 2 }),
  stopping: make({ ...exited, ...wantsGpu, gpus: ['g1'], stopping: true }),
  exited: make(exited),
  error: make({ status: 'ERROR', desired: 'stopped', endedAt: NOW - 1, reason: 'crashed' }),
  terminated: make({
    ...wantsGpu,
    gpus: ['g1'],
    status: 'TERMINATED',
    desired: 'gone',
    endedAt: 5,
  }),
  removed: make({ status: 'TERMINATED', desired: 'gone', endedAt: 5, removed: true }),
};
export type StateName = keyof typeof states;

const seenBase: Container = {
  ...{ id: 'pod_1', generation: 2, labels: {}, state: 'created', health: 'none' },
  ...{ hasDiskLimit: false, exitCode: null, outOfMemory: false, startedAt: null, endedAt: null },
  ...{ ports: [], gpus: [], ip: null },
};

function see(fields: Partial<Container>): Container {
  return { ...seenBase, ...fields };
}

const runs = { state: 'running', startedAt } as const;
const ended = { state: 'exited', startedAt, endedAt: NOW - 10 } as const;

export const sights = {
  nothing: undefined,
  olderRunning: see({ ...runs, generation: 1 }),
  olderExited: see({ ...ended, generation: 1, exitCode: 1 }),
  created: see({}),
  running: see(runs),
  healthy: see({ ...runs, health: 'healthy' }),
  checking: see({ ...runs, health: 'starting' }),
  unhealthy: see({ ...runs, health: 'unhealthy' }),
  endedBefore: see({ ...ended, startedAt: KNOWN_RUN, exitCode: 1 }),
  endedWell: see({ ...ended, exitCode: 0 }),
  crashed: see({ ...ended, exitCode: 3 }),
  outOfMemory: see({ ...ended, exitCode: 137, outOfMemory: true }),
};
export type SightName = keyof typeof sights;

/** What differs between the two, in a few words; `same` for the same object. */
export function describeChange(before: PodState, after: PodState): string {
  if (after === before) return 'same';
  const words: string[] = [after.status];
  if (after.desired !== before.desired) words.push(`to be ${after.desired}`);
  if (after.generation !== before.generation) words.push('new container');
  if (after.stopping !== before.stopping) words.push(after.stopping ? 'stopping' : 'stopped');
  if (after.endedRun !== before.endedRun) words.push('end known');
  if (after.gpus.length < before.gpus.length) words.push('gives GPUs back');
  if (after.failures !== before.failures) words.push(`failures ${after.failures}`);
  if (after.retryAt !== before.retryAt) words.push(describeRetry(after.retryAt));
  if (after.startedAt !== before.startedAt) words.push(after.startedAt ? 'started' : 'not started');
  if (after.reason !== before.reason) words.push(after.reason === null ? 'hush' : 'says why');
  return words.join(', ');
}

function describeRetry(retryAt: number | null): string {
  return retryAt === null ? 'no wait' : `wait ${retryAt - NOW}`;
}

export function describeStep(step: PodStep): string {
  switch (step.kind) {
    case 'wait':
      return `wait ${step.until - NOW}`;
    case 'remove':
      return step.volumes === 'remove' ? 'remove all' : 'remove';
    case 'allot':
      return step.among ? `allot ${step.among.join(' ')}` : 'allot';
    default:
      return step.kind;
  }
}
