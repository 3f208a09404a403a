// Random operations on a store: jobs of three endpoints, their payloads and deliveries.
import { expect } from 'vitest';
import type {
  JobListing,
  Reader,
  Store,
  StoredJob,
  Transaction,
} from '../../../src/store/store.ts';
import type { JobStatus } from '../../../src/wire/job/job.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { createRandom } from '../random.ts';
import { makeDelivery, makeJob, makeLease } from './stored-jobs.ts';

const EPS = ['a', 'b', 'c'];
/** Kinds of operations that read lists. */
const LISTING = new Set([6, 7, 8, 14, 16, 17, 18]);
/** Kinds of operations that change endpoints. */
const LAST = new Set([14, 15, 19]);
class Refused extends Error {}

export interface Play {
  store: Store;
  seed: number;
  turns: number;
  /** Whether an error is one that the faults of the test cause. */
  isExpected: (error: unknown) => boolean;
  /** Runs it on what the database has alone. */
  readFresh: <T>(operation: (tx: Reader) => T) => Promise<T>;
  /** Called before and after the operations of each turn. */
  setFaults: (isOn: boolean) => void;
}

/** What is in memory must always equal what a new process would read from the database. */

export async function play({
  isExpected,
  readFresh,
  seed,
  setFaults,
  store,
  turns,
}: Play): Promise<void> {
  const random = createRandom(seed);
  const below = (n: number) => Math.floor(random() * n);
  const pick = <T>(list: readonly T[]): T => {
    const picked = list[below(list.length)];
    if (picked === undefined) throw new Error('nothing to pick from');
    return picked;
  };
  let n = 0;
  const ids: { endpointId: string; id: string }[] = [];
  const inputs = new Map<string, number>();
  const outputs = new Map<string, number>();
  const settings = endpointSettings.parse({});
  const payload = (size: number) => new Uint8Array(size).fill(65);
  function addEndpoint(tx: Transaction, id: string): void {
    if (!tx.endpoint(id)) tx.putEndpoint({ id, settings, createdAt: 1 });
  }
  for (const id of EPS) await store.write((tx) => addEndpoint(tx, id));
  /** Lists come first in an operation, and changes of endpoints last. */
  function act(tx: Transaction, note: (() => void)[], step: { isFirst: boolean; isLast: boolean }) {
    const endpointId = pick(EPS);
    if (step.isFirst && below(4) === 0) tx.endpoints();
    const dice = below(20);
    if (LISTING.has(dice) && !step.isFirst) return;
    if (LAST.has(dice) && !step.isLast) return;
    if (dice < 6) {
      if (!tx.endpoint(endpointId)) return;
      const id = `j${n++}`;
      const size = pick([0, 5, 1024, 1025, 3000]);
      ids.push({ endpointId, id });
      note.push(() => inputs.set(`${endpointId}/${id}`, size));
      tx.insertJob(
        makeJob({
          id,
          endpointId,
          position: below(12),
          priority: below(2),
          delayed: below(5) === 0,
          dueAt: below(100),
          webhook: below(2) ? 'http://x/' : null,
          idempotencyKey: below(3) ? null : `k${id}`,
        }),
        payload(size),
      );
    } else if (dice < 9) {
      for (const job of tx.readyJobs(endpointId, 1 + below(4)))
        tx.saveJob(
          job,
          {
            ...job,
            status: 'IN_PROGRESS',
            lease: makeLease({ token: `t${n++}` }),
            dueAt: below(100),
          },
          0,
        );
    } else if (dice < 14) {
      const key = ids.length ? pick(ids) : undefined;
      const job = key && tx.job(key);
      if (!job) return;
      const name = `${job.endpointId}/${job.id}`;
      if (dice < 11) {
        if (job.status === 'COMPLETED') return;
        const size = pick([1, 900, 1024, 1025, 5000]);
        tx.saveJob(
          job,
          { ...job, status: 'COMPLETED', outputKind: 'value', delayed: false, lease: null },
          0,
        );
        if (below(3) === 0) tx.jobByIdempotencyKey(endpointId, 'x');
        tx.putOutput(job, payload(size));
        note.push(() => outputs.set(name, size));
        if (below(2))
          tx.insertDelivery(
            makeDelivery({ endpointId: job.endpointId, id: `d${n++}`, jobId: job.id, bytes: size }),
            [{ outputOf: job }],
          );
      } else if (dice < 12) {
        tx.saveJob(
          job,
          {
            ...job,
            status: 'IN_QUEUE',
            lease: below(2) && job.lease ? { ...job.lease, lost: 'failure' } : null,
            delayed: below(3) === 0,
            outputKind: 'none',
          },
          1,
        );
        tx.dropOutput(job);
        note.push(() => outputs.delete(name));
      } else if (dice < 13) {
        // A job with an output fails only after the output was dropped.
        if (job.outputKind !== 'none') return;
        tx.saveJob(job, { ...job, status: 'FAILED', lease: null, history: [] }, 0);
      } else {
        tx.removeJob(job);
      }
    } else if (dice === 14) {
      const all = tx.jobs({ endpointId, status: undefined, before: undefined, limit: 1000 });
      for (const job of all) tx.removeJob(job);
      tx.removeEndpoint(endpointId);
    } else if (dice === 15) addEndpoint(tx, endpointId);
    else if (dice === 16) {
      for (const job of tx.dueJobs(below(100), 3))
        tx.saveJob(job, { ...job, dueAt: job.dueAt + 10, delayed: false }, 0);
    } else if (dice === 17) {
      const [d] = tx.dueDeliveries({
        userId: 'owner',
        receiver: 'example.com',
        now: 2000,
        limit: 1,
      });
      if (d) tx.removeDelivery(d);
    } else if (dice === 18) {
      for (const job of tx.queuedJobs(endpointId, 2))
        tx.saveJob(job, { ...job, status: 'CANCELLED', lease: null, delayed: false }, 0);
    } else tx.putEndpoint({ id: endpointId, settings, createdAt: 1 });
  }
  for (let turn = 0; turn < turns; turn++) {
    setFaults(true);
    await Promise.allSettled(
      Array.from({ length: 1 + below(5) }, async () => {
        let note: (() => void)[] = [];
        await store.write((tx) => {
          note = [];
          const steps = 1 + below(3);
          for (let s = 0; s < steps; s++)
            act(tx, note, { isFirst: s === 0, isLast: s === steps - 1 });
          if (below(6) === 0) throw new Refused();
          // The database refuses this row: every operation of the batch runs again, alone.
          if (below(25) === 0 && ids.length) {
            const key = pick(ids);
            const taken = tx.job(key);
            if (taken?.idempotencyKey)
              tx.insertJob(
                makeJob({ ...key, id: `x${n++}`, idempotencyKey: taken.idempotencyKey }),
                payload(1),
              );
          }
        });
        for (const each of note) each();
      }),
    ).then((results) => {
      setFaults(false);
      for (const r of results)
        if (r.status === 'rejected' && !(r.reason instanceof Refused) && !isExpected(r.reason))
          throw r.reason;
    });
    const limits = { ready: 1 + below(5), endpoints: EPS.filter(() => below(2)) };
    const look = (tx: Reader) => ({
      endpoints: tx.endpoints(),
      each: tx.each(EPS, (id) => tx.endpoint(id)),
      running: tx.each(limits.endpoints, (endpointId) =>
        byId(tx.jobs(allOf(endpointId, 'IN_PROGRESS'))),
      ),
      leased: namesOf(tx.leasedJobs()),
      due: namesOf(tx.dueJobs(50, 1e6)),
      jobs: tx.each(ids, (key) => tx.job(key)),
      inputs: tx.each(ids, (key) => tx.input(key)?.length),
      outputs: tx.each(ids, (key) => tx.output(key)?.length),
    });
    const fresh = await readFresh(look);
    expect(await store.read(look)).toEqual(fresh);
    for (const [index, endpointId] of EPS.entries()) {
      const all = await readFresh((tx) => tx.jobs(allOf(endpointId, undefined)));
      const endpoint = fresh.each[index];
      const count = (status: string) => all.filter((job) => job.status === status).length;
      if (endpoint) {
        expect([endpoint.inQueue, endpoint.inProgress]).toEqual([
          count('IN_QUEUE'),
          count('IN_PROGRESS'),
        ]);
      }
      const ready = await readFresh((tx) => tx.readyJobs(endpointId, 1e6));
      const got = await store.read((tx) => tx.readyJobs(endpointId, limits.ready));
      expect(byPlace(got)).toEqual(byPlace(ready.slice(0, limits.ready)));
      expect(new Set(got.map((job) => job.id)).size).toBe(got.length);
    }
    for (const [index, job] of fresh.jobs.entries()) {
      if (!job) continue;
      const name = `${job.endpointId}/${job.id}`;
      expect([name, fresh.inputs[index]]).toEqual([name, inputs.get(name)]);
      expect([name, fresh.outputs[index]]).toEqual([name, outputs.get(name)]);
    }
  }
  await store.close();
}

function allOf(endpointId: string, status: JobStatus | undefined): JobListing {
  return { endpointId, status, before: undefined, limit: 1e6 };
}

function byId(jobs: readonly StoredJob[]) {
  const clean = jobs.map(({ attachment: _, ...job }) => job);
  return clean.sort((a, b) => (a.id < b.id ? -1 : 1));
}

function byPlace(jobs: readonly StoredJob[]): string[] {
  return jobs.map((job) => `${1 - job.priority} ${String(job.position).padStart(5)}`);
}

function namesOf(jobs: readonly StoredJob[]): string[] {
  return jobs.map((job) => `${job.endpointId}/${job.id}`).sort();
}
