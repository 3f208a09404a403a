// Creates stored jobs, leases and deliveries for tests, from defaults and given changes.

import {
  ENDING,
  NEW_JOB,
  type Store,
  type StoredDelivery,
  type StoredJob,
  type StoredLease,
} from '../../../src/store/store.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { defaultsOf } from '../../../src/wire/resources/field.ts';
import { WORKER_FIELDS } from '../../../src/wire/resources/fields.ts';

export const ENDPOINT = 'ep_test';

const settings = endpointSettings.parse({});

export function makeJob(changes: Partial<StoredJob> & { id: string }): StoredJob {
  return {
    ...NEW_JOB,
    endpointId: ENDPOINT,
    status: 'IN_QUEUE',
    priority: 0,
    group: null,
    place: changes.position ?? 1,
    position: 1,
    submittedAt: 1_000,
    queuedAt: 1_000,
    availableAt: 1_000,
    delayed: false,
    expiresAt: 86_401_000,
    ttlMs: 86_400_000,
    executionTimeoutMs: 600_000,
    maxAttempts: 3,
    dueAt: 86_401_000,
    idempotencyKey: null,
    ...changes,
  };
}

export function makeDelivery(changes: Partial<StoredDelivery> & { id: string }): StoredDelivery {
  return {
    endpointId: ENDPOINT,
    jobId: 'job-1',
    userId: 'owner',
    url: 'https://example.com/done',
    receiver: 'example.com',
    createdAt: 1_000,
    platformRanMs: 0,
    bytes: 2,
    attempts: 0,
    nextAt: 1_000,
    ...changes,
  };
}

export function makeLease(changes: Partial<StoredLease> = {}): StoredLease {
  return {
    token: 'token-1',
    workerId: 'worker-1',
    incarnation: 1_700_000_000_000,
    takeId: 'take-1',
    until: 16_000,
    started: false,
    lost: null,
    ...changes,
  };
}

export const INPUT = new TextEncoder().encode('{"prompt":"hello"}');

export async function addEndpoint(store: Store, id = ENDPOINT): Promise<void> {
  await store.write((tx) => tx.putEndpoint({ id, settings, createdAt: 1 }));
}

export async function addJobs(store: Store, jobs: readonly StoredJob[]): Promise<void> {
  await store.write((tx) => {
    for (const job of jobs) tx.insertJob(job, INPUT);
  });
}

/** Deletes the payloads that no job has, as the queue does it over time. */
export async function deleteUnused(store: Store): Promise<void> {
  for (;;) {
    const [payload] = await store.read((tx) => tx.unusedPayloads(1));
    if (!payload) return;
    await store.files?.remove(await store.read((tx) => tx.filesOf(payload)));
    await store.write((tx) => tx.deleteUnused([payload], 1_048_576), ENDING);
  }
}

/** Members of a deployment that few tests care about. */
export const USUAL_DEPLOYMENT = defaultsOf(WORKER_FIELDS);
