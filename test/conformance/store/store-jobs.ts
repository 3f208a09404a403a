// Jobs: every field, changes and removal.
import { expect, it } from 'vitest';
import type { StoredJob } from '../../../src/store/store.ts';
import { addJobs, ENDPOINT, INPUT, makeJob, makeLease } from '../../support/store/stored-jobs.ts';
import { bytesOf, keyOf, readJob, save, store, textOf } from './store-under-test.ts';

const fullJob: StoredJob = makeJob({
  id: 'sync-full',
  status: 'IN_PROGRESS',
  mode: 'runsync',
  priority: 9,
  group: 'of ä',
  turn: 13,
  position: 9_007_199_254_740_991,
  submittedAt: 1_767_225_600_001,
  queuedAt: 1_767_225_600_002,
  availableAt: 1_767_225_600_003,
  delayed: true,
  expiresAt: 1_767_225_600_004,
  ttlMs: 604_800_000,
  executionTimeoutMs: 1_000,
  maxAttempts: 7,
  startedAt: 1_767_225_600_005,
  deadlineAt: 1_767_225_600_006,
  endedAt: 1_767_225_600_007,
  executionMs: 12.5,
  dueAt: 1_767_225_600_008,
  attempt: 5,
  failures: 2,
  releases: 3,
  solo: true,
  lease: makeLease({ started: true, lost: 'release' }),
  lastSeq: 6,
  chunkCount: 8,
  chunkBytes: 4_000_000_000,
  cursorAttempt: 4,
  cursorNext: 10,
  outputKind: 'chunks',
  logBytes: 11,
  logDropped: 12,
  error: {
    code: 'handler_error',
    message: 'naïve “boom”?',
    type: 'TypeError',
    stack: 'at x',
    attempts: [],
  },
  history: [
    {
      attempt: 1,
      code: 'lease_expired',
      message: 'm',
      workerId: 'worker-0',
      startedAt: 98,
      endedAt: 99,
    },
  ],
  notes: [{ at: 98, event: 'first_chunk', attempt: 1 }],
  progress: '{"percent":10}',
  usage: { gpu: { seconds: 1.5, vramPeakBytes: 8e10, shared: false } },
  workerId: 'worker-1',
  idempotencyKey: 'key',
  requestHash: 'hash',
  traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  tracestate: 'vendor=state',
  webhook: 'https://example.com/done?job=ä',
  attachment: { format: 'runpod', handlerData: '{"bucketName":"ä"}' },
});

const odd = 'a\0b\x10\x100\x101\x7f';
const withControlCharacters = {
  idempotencyKey: odd,
  progress: JSON.stringify(odd),
  tracestate: odd,
  webhook: odd,
  error: { code: 'handler_error' as const, message: odd, attempts: [] },
};

export function describeJobs(): void {
  it.each([
    ['with every field set', fullJob],
    ['with required fields only', makeJob({ id: 'a' })],
    ['with control characters in its texts', makeJob({ id: 'a', ...withControlCharacters })],
  ])('%s is returned unchanged', async (_, job) => {
    await addJobs(store, [job]);
    expect(await readJob(job.id)).toEqual(job);
  });

  const changes = Object.entries(fullJob).filter(
    ([field]) => field !== 'id' && field !== 'endpointId',
  );
  it.each(changes)('is saved when its %s changes and changes back', async (field, to) => {
    const before = makeJob({ id: 'a' });
    await addJobs(store, [before]);
    const after = await save(before, { [field]: to });
    expect(await readJob('a')).toEqual(after);
    await save(after, before);
    expect(await readJob('a')).toEqual(before);
  });

  it('keeps every field of its lease', async () => {
    const before = makeJob({ id: 'a', lease: makeLease() });
    await addJobs(store, [before]);
    const lease = makeLease({
      token: 't2',
      workerId: 'w2',
      incarnation: 2,
      takeId: 'k2',
      until: 3,
    });
    const after = await save(before, { lease: { ...lease, started: true, lost: 'failure' } });
    expect(await readJob('a')).toEqual(after);
  });

  it('is saved without a change to other jobs', async () => {
    const other = { ...makeJob({ id: 'a' }), endpointId: 'ep_other' };
    const [a, b] = [makeJob({ id: 'a' }), makeJob({ id: 'b' })];
    await addJobs(store, [a, b, other]);
    await save(a, { attempt: 4 });
    expect((await readJob('b'))?.attempt).toBe(0);
    expect((await store.read((tx) => tx.job(other)))?.attempt).toBe(0);
  });

  it('is found by its idempotency key on its endpoint only', async () => {
    await addJobs(store, [
      makeJob({ id: 'a', idempotencyKey: 'k' }),
      { ...makeJob({ id: 'b', idempotencyKey: 'k' }), endpointId: 'ep_other' },
      makeJob({ id: 'c' }),
    ]);
    const find = (endpointId: string, key: string) =>
      store.read((tx) => tx.jobByIdempotencyKey(endpointId, key));
    expect((await find(ENDPOINT, 'k'))?.id).toBe('a');
    expect((await find('ep_other', 'k'))?.id).toBe('b');
    expect(await find(ENDPOINT, 'unknown')).toBeUndefined();
  });

  it('is found by an idempotency key with control characters', async () => {
    await addJobs(store, [
      makeJob({ id: 'a', idempotencyKey: 'k\0' }),
      makeJob({ id: 'b', idempotencyKey: 'k\x10' }),
      makeJob({ id: 'c', idempotencyKey: 'k\x100' }),
    ]);
    const find = (key: string) => store.read((tx) => tx.jobByIdempotencyKey(ENDPOINT, key));
    expect((await find('k\0'))?.id).toBe('a');
    expect((await find('k\x10'))?.id).toBe('b');
    expect((await find('k\x100'))?.id).toBe('c');
  });

  it('is refused if another job of the endpoint has its idempotency key', async () => {
    await addJobs(store, [makeJob({ id: 'a', idempotencyKey: 'k' })]);
    await expect(addJobs(store, [makeJob({ id: 'b', idempotencyKey: 'k' })])).rejects.toThrow();
  });

  it('is removed with all of its data, and other jobs are kept', async () => {
    const [a, b] = [makeJob({ id: 'a' }), makeJob({ id: 'b' })];
    await addJobs(store, [a, b]);
    await store.write((tx) => {
      for (const { id } of [a, b]) {
        tx.putOutput(keyOf(id), bytesOf('1'));
        const batch = { first: 0, sizes: [2], bytes: bytesOf('{}') };
        tx.appendChunks({ ...keyOf(id), attempt: 1 }, batch);
        tx.appendLog(keyOf(id), 0, bytesOf('line\n'));
      }
      tx.removeJob(a);
    });
    const list = (id: string) =>
      store.read((tx) => {
        const job = tx.job(keyOf(id));
        const input = tx.input(keyOf(id));
        const output = tx.output(keyOf(id));
        const range = { ...keyOf(id), attempt: 1, from: 0, maxBytes: 100 };
        const chunks = tx.chunks(range);
        const log = tx.log(range);
        return [job?.id, textOf(input), textOf(output), chunks.length, textOf(log)];
      });
    expect(await list('a')).toEqual([undefined, undefined, undefined, 0, '']);
    expect(await list('b')).toEqual(['b', textOf(INPUT), '1', 1, 'line\n']);
  });
}
