// Random operations on a store: jobs of three endpoints, their payloads and deliveries.
import { expect } from 'vitest';
import { LiveJobs } from '../../../../src/store/live/live-jobs.ts';
import { LiveReader } from '../../../../src/store/live/live-reader.ts';
import { SqlTables } from '../../../../src/store/sql/sql-tables.ts';
import type { Step, Store, StoredJob, Transaction } from '../../../../src/store/store.ts';
import { endpointSettings } from '../../../../src/wire/resources/endpoint.ts';
import { makeDelivery, makeJob, makeLease } from '../../../conformance/store/stored-jobs.ts';
import { createRandom } from '../../../support/random.ts';

const EPS = ['a', 'b', 'c'];
class Refused extends Error {}

export interface Play {
  store: Store;
  seed: number;
  turns: number;
  /** Whether an error is one that the faults of the test cause. */
  isExpected: (error: unknown) => boolean;
  /** Called before and after the operations of each turn. */
  setFaults: (isOn: boolean) => void;
}

/** What is in memory must always equal what a new process would read from the database. */

export async function play({ isExpected, seed, setFaults, store, turns }: Play): Promise<void> {
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
  function* addEndpoint(tx: Transaction, id: string): Step<void> {
    if (!(yield* tx.endpoint(id))) yield* tx.putEndpoint({ id, settings, createdAt: 1 });
  }
  for (const id of EPS) await store.write((tx) => addEndpoint(tx, id));
  function* act(tx: Transaction, note: (() => void)[]): Step<void> {
    const endpointId = pick(EPS);
    if (below(4) === 0) yield* tx.endpoints();
    const dice = below(20);
    if (dice < 6) {
      if (!(yield* tx.endpoint(endpointId))) return;
      const id = `j${n++}`;
      const size = pick([0, 5, 1024, 1025, 3000]);
      ids.push({ endpointId, id });
      note.push(() => inputs.set(`${endpointId}/${id}`, size));
      yield* tx.insertJob(
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
      for (const job of yield* tx.readyJobs(endpointId, 1 + below(4)))
        yield* tx.saveJob(
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
      const job = key && (yield* tx.job(key));
      if (!job) return;
      const name = `${job.endpointId}/${job.id}`;
      if (dice < 11) {
        if (job.status === 'COMPLETED') return;
        const size = pick([1, 900, 1024, 1025, 5000]);
        yield* tx.saveJob(
          job,
          { ...job, status: 'COMPLETED', outputKind: 'value', delayed: false, lease: null },
          0,
        );
        if (below(3) === 0) yield* tx.jobByIdempotencyKey(endpointId, 'x');
        yield* tx.putOutput(job, payload(size));
        note.push(() => outputs.set(name, size));
        if (below(2))
          yield* tx.insertDelivery(
            makeDelivery({ endpointId: job.endpointId, id: `d${n++}`, jobId: job.id, bytes: size }),
            [{ outputOf: job }],
          );
      } else if (dice < 12) {
        yield* tx.saveJob(
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
        yield* tx.dropOutput(job);
        note.push(() => outputs.delete(name));
      } else if (dice < 13) {
        // A job with an output fails only after the output was dropped.
        if (job.outputKind !== 'none') return;
        yield* tx.saveJob(job, { ...job, status: 'FAILED', lease: null, history: [] }, 0);
      } else {
        yield* tx.removeJob(job);
      }
    } else if (dice === 14) {
      const all = yield* tx.jobs({ endpointId, status: undefined, before: undefined, limit: 1000 });
      for (const job of all) yield* tx.removeJob(job);
      yield* tx.removeEndpoint(endpointId);
    } else if (dice === 15) yield* addEndpoint(tx, endpointId);
    else if (dice === 16) {
      for (const job of yield* tx.dueJobs(below(100), 3))
        yield* tx.saveJob(job, { ...job, dueAt: job.dueAt + 10, delayed: false }, 0);
    } else if (dice === 17) {
      const [d] = yield* tx.dueDeliveries({
        userId: 'owner',
        receiver: 'example.com',
        now: 2000,
        limit: 1,
      });
      if (d) yield* tx.removeDelivery(d);
    } else if (dice === 18) {
      for (const job of yield* tx.queuedJobs(endpointId, 2))
        yield* tx.saveJob(job, { ...job, status: 'CANCELLED', lease: null, delayed: false }, 0);
    } else yield* tx.putEndpoint({ id: endpointId, settings, createdAt: 1 });
  }
  for (let turn = 0; turn < turns; turn++) {
    setFaults(true);
    await Promise.allSettled(
      Array.from({ length: 1 + below(5) }, async () => {
        let note: (() => void)[] = [];
        await store.write(function* (tx) {
          note = [];
          const steps = 1 + below(3);
          for (let s = 0; s < steps; s++) yield* act(tx, note);
          if (below(6) === 0) throw new Refused();
          // The database refuses this row: every operation of the batch runs again, alone.
          if (below(25) === 0 && ids.length) {
            const key = pick(ids);
            const taken = yield* tx.job(key);
            if (taken?.idempotencyKey)
              yield* tx.insertJob(
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
    await store.read(function* (tx) {
      const tables = new SqlTables();
      const fresh = new LiveReader(tables, new LiveJobs(tables));
      expect(yield* tx.endpoints()).toEqual(yield* fresh.endpoints());
      const clean = (jobs: StoredJob[]) => jobs.map(({ attachment: _, ...job }) => job);
      for (const e of EPS) {
        const known = yield* fresh.endpoint(e);
        expect(yield* tx.endpoint(e)).toEqual(known);
        const all = yield* fresh.jobs({
          endpointId: e,
          status: undefined,
          before: undefined,
          limit: 1e6,
        });
        if (known) {
          expect(known.inQueue).toBe(all.filter((j) => j.status === 'IN_QUEUE').length);
          expect(known.inProgress).toBe(all.filter((j) => j.status === 'IN_PROGRESS').length);
        }
        const byPlace = (jobs: StoredJob[]) =>
          jobs.map((j) => `${1 - j.priority} ${String(j.position).padStart(5)}`);
        const ready = yield* fresh.readyJobs(e, 1e6);
        if (below(2)) {
          const limit = 1 + below(5);
          const got = yield* tx.readyJobs(e, limit);
          expect(byPlace(got)).toEqual(byPlace(ready.slice(0, limit)));
          expect(new Set(got.map((j) => j.id)).size).toBe(got.length);
        }
        const run = {
          endpointId: e,
          status: 'IN_PROGRESS' as const,
          before: undefined,
          limit: 1e6,
        };
        const byId = (jobs: StoredJob[]) => clean(jobs).sort((x, y) => (x.id < y.id ? -1 : 1));
        if (below(2)) expect(byId(yield* tx.jobs(run))).toEqual(byId(yield* fresh.jobs(run)));
      }
      const ids2 = (jobs: StoredJob[]) => jobs.map((j) => `${j.endpointId}/${j.id}`).sort();
      expect(ids2(yield* tx.leasedJobs())).toEqual(ids2(yield* fresh.leasedJobs()));
      expect(ids2(yield* tx.dueJobs(50, 1e6))).toEqual(ids2(yield* fresh.dueJobs(50, 1e6)));
      for (const key of ids) {
        const job = yield* fresh.job(key);
        expect(yield* tx.job(key)).toEqual(job);
        const name = `${key.endpointId}/${key.id}`;
        if (!job) continue;
        expect([name, (yield* tx.input(key))?.length]).toEqual([name, inputs.get(name)]);
        expect([name, (yield* tx.output(key))?.length]).toEqual([name, outputs.get(name)]);
      }
    });
  }
  await store.close();
}
