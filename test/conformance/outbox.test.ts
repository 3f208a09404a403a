// The suite that every outbox passes.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLog } from '../../src/base/log.ts';
import { DiskOutbox } from '../../src/worker/outbox/disk-outbox.ts';
import { MemoryOutbox, type Outbox } from '../../src/worker/outbox/outbox.ts';
import { addChunk, complete, leaseRef, nameReports } from '../support/workers/outbox-reports.ts';

interface OpenOutbox {
  outbox: Outbox;
  close(): Promise<void>;
}

const OUTBOXES = [
  {
    name: 'in memory',
    open: async (): Promise<OpenOutbox> => ({ outbox: new MemoryOutbox(), close: async () => {} }),
  },
  { name: 'on disk', open: () => openOnDisk() },
  { name: 'on disk, compacted with every write', open: () => openOnDisk(0) },
];
const BATCH = { maxReports: 1_000, maxBytes: 1_000_000 };

describe.each(OUTBOXES)('the outbox $name', ({ open }) => {
  const opened: OpenOutbox[] = [];

  afterEach(async () => {
    for (const each of opened.splice(0)) await each.close();
  });

  async function openOutbox(): Promise<Outbox> {
    const each = await open();
    opened.push(each);
    return each.outbox;
  }

  it('returns each report once, in the order of its attempt', async () => {
    const outbox = await openOutbox();
    const attempt = outbox.addAttempt(leaseRef('a'));
    addChunk(attempt, '1');
    attempt.addProgress(Buffer.from('50'));
    outbox.notifyChanged(attempt);
    const first = outbox.takeBatch(BATCH);
    complete(attempt);
    outbox.notifyChanged(attempt);
    await outbox.flush();
    const second = outbox.takeBatch(BATCH);
    expect(nameReports([...first, ...second])).toEqual([
      'a#1 chunks 1',
      'a#2 progress 50',
      'a#3 outcome {}',
    ]);
    expect(outbox.takeBatch(BATCH)).toEqual([]);
  });

  it('returns nothing of an attempt without a notification', async () => {
    const outbox = await openOutbox();
    addChunk(outbox.addAttempt(leaseRef('a')), '1');
    expect(outbox.takeBatch(BATCH)).toEqual([]);
  });

  it('returns first the attempt whose change was notified first', async () => {
    const outbox = await openOutbox();
    const [a, b] = [outbox.addAttempt(leaseRef('a')), outbox.addAttempt(leaseRef('b'))];
    for (const attempt of [b, a]) {
      addChunk(attempt, '1');
      outbox.notifyChanged(attempt);
    }
    expect(nameReports(outbox.takeBatch(BATCH))).toEqual(['b#1 chunks 1', 'a#1 chunks 1']);
  });

  it('keeps a batch within its limits, except for a single larger report', async () => {
    const outbox = await openOutbox();
    for (const [jobId, bytes] of [
      ['a', 4],
      ['b', 4],
      ['c', 40],
      ['d', 1],
    ] as const) {
      const attempt = outbox.addAttempt(leaseRef(jobId));
      addChunk(attempt, '1'.repeat(bytes));
      outbox.notifyChanged(attempt);
    }
    const takeJobs = (limits: Partial<typeof BATCH>) =>
      outbox.takeBatch({ ...BATCH, ...limits }).map(({ report }) => report.jobId);
    expect(takeJobs({ maxBytes: 8 })).toEqual(['a', 'b']);
    expect(takeJobs({ maxBytes: 8 })).toEqual(['c']);
    expect(takeJobs({ maxReports: 1 })).toEqual(['d']);
  });

  it('keeps the chunks of a batch within its limit, except for a single report with more', async () => {
    const outbox = await openOutbox();
    for (const [jobId, count] of [
      ['a', 2],
      ['b', 2],
      ['c', 9],
      ['d', 1],
    ] as const) {
      const attempt = outbox.addAttempt(leaseRef(jobId));
      for (let n = 0; n < count; n++) addChunk(attempt, '1');
      outbox.notifyChanged(attempt);
    }
    const takeJobs = () =>
      outbox.takeBatch({ ...BATCH, maxChunks: 4 }).map(({ report }) => report.jobId);
    expect(takeJobs()).toEqual(['a', 'b']);
    expect(takeJobs()).toEqual(['c']);
    expect(takeJobs()).toEqual(['d']);
  });

  it('ends a report of chunks at 10,000 and starts another', async () => {
    const outbox = await openOutbox();
    const attempt = outbox.addAttempt(leaseRef('a'));
    for (let n = 0; n < 10_001; n++) addChunk(attempt, '1');
    outbox.notifyChanged(attempt);
    const sizes = outbox
      .takeBatch(BATCH)
      .map(({ report }) => (report.kind === 'chunks' ? report.sizes.length : 0));
    expect(sizes).toEqual([10_000, 1]);
  });

  it('counts reports and bytes until they are acknowledged', async () => {
    const outbox = await openOutbox();
    const attempt = outbox.addAttempt(leaseRef('a'));
    addChunk(attempt, '123');
    complete(attempt, '{"n":1}');
    outbox.notifyChanged(attempt);
    outbox.takeBatch(BATCH);
    await outbox.flush();
    expect([outbox.depth, outbox.bytes]).toEqual([2, 10]);
    attempt.acknowledge(1);
    expect([outbox.depth, outbox.bytes]).toEqual([1, 7]);
    outbox.removeAttempt(attempt);
    expect([outbox.depth, outbox.bytes]).toEqual([0, 0]);
  });

  it('repeats reports from the restart of the attempt', async () => {
    const outbox = await openOutbox();
    const attempt = outbox.addAttempt(leaseRef('a'));
    addChunk(attempt, '1');
    complete(attempt);
    outbox.notifyChanged(attempt);
    await outbox.flush();
    const before = nameReports(outbox.takeBatch(BATCH));
    expect(attempt.resendFrom(1)).toBe(true);
    outbox.notifyChanged(attempt);
    expect(nameReports(outbox.takeBatch(BATCH))).toEqual(before);
  });

  it('returns nothing more of a removed attempt', async () => {
    const outbox = await openOutbox();
    const attempt = outbox.addAttempt(leaseRef('a'));
    complete(attempt);
    outbox.notifyChanged(attempt);
    outbox.removeAttempt(attempt);
    outbox.notifyChanged(attempt);
    expect(outbox.takeBatch(BATCH)).toEqual([]);
  });

  it('names the attempts whose outcome is not acknowledged, and only those', async () => {
    const outbox = await openOutbox();
    const [a, b, c] = ['a', 'b', 'c'].map((id) => outbox.addAttempt(leaseRef(id)));
    if (a) addChunk(a, '1');
    for (const attempt of [b, c]) if (attempt) complete(attempt);
    for (const attempt of [a, b, c]) if (attempt) outbox.notifyChanged(attempt);
    await outbox.flush();
    expect(outbox.undelivered()).toEqual([leaseRef('b'), leaseRef('c')]);
    if (b) outbox.removeAttempt(b);
    expect(outbox.undelivered()).toEqual([leaseRef('c')]);
  });

  it('is empty, without a disk error or pending writes, when it is new', async () => {
    const outbox = await openOutbox();
    expect(outbox.restoredAttempts()).toEqual([]);
    expect(outbox.undeliveredOnDisk()).toEqual([]);
    expect(outbox.diskError).toBeUndefined();
    expect(outbox.flush()).toBeUndefined();
  });
});

async function openOnDisk(compactAboveBytes?: number): Promise<OpenOutbox> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-outbox-'));
  const outbox = await DiskOutbox.open({
    folder,
    clock: systemClock,
    log: silentLog,
    ...(compactAboveBytes !== undefined && { compactAboveBytes }),
  });
  return {
    outbox,
    async close() {
      await outbox.close();
      await rm(folder, { recursive: true });
    },
  };
}
