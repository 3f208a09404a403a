// The store of the current test, and helpers to use it.
import { afterEach, beforeEach } from 'vitest';
import type { Store, StoredJob } from '../../../src/store/store.ts';
import { addEndpoint, ENDPOINT } from '../../support/store/stored-jobs.ts';

export let store: Store;

/** Opens a new store with one endpoint for every test. */
export function openForEachTest(open: () => Promise<Store> | Store): void {
  beforeEach(async () => {
    store = await open();
    await addEndpoint(store);
  });
  afterEach(() => store.close());
}

export function bytesOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

export function textOf(bytes: Uint8Array | undefined): string | undefined {
  return bytes && new TextDecoder().decode(bytes);
}

export function idsOf(jobs: readonly { id: string }[]): string[] {
  return jobs.map((job) => job.id);
}

export function keyOf(id: string): { endpointId: string; id: string } {
  return { endpointId: ENDPOINT, id };
}

export function readJob(id: string): Promise<StoredJob | undefined> {
  return store.read((tx) => tx.job(keyOf(id)));
}

export async function save(before: StoredJob, changes: Partial<StoredJob>, retried = 0) {
  const after = { ...before, ...changes };
  await store.write((tx) => tx.saveJob(before, after, retried));
  return after;
}
