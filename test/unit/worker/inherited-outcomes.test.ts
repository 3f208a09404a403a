// What a worker does with the outcomes that an earlier process left on its disk, and when its own are
// sent: against a scripted queue, with a real journal.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../../src/base/clock.ts';
import { createLog, type Log, silentLog } from '../../../src/base/log.ts';
import { LinkError, type ReportReply } from '../../../src/wire/link/worker-link.ts';
import { DiskOutbox } from '../../../src/worker/outbox/disk-outbox.ts';
import { MemoryOutbox } from '../../../src/worker/outbox/outbox.ts';
import { readUndelivered } from '../../../src/worker/outbox/outbox-entries.ts';
import { addChunk, complete, leaseRef } from '../../support/workers/outbox-reports.ts';
import { lease, type Script, script } from '../../support/workers/worker-script.ts';

let folder: string;
let logged: string;
const opened: DiskOutbox[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-outbox-'));
  logged = '';
});

afterEach(async () => {
  for (const outbox of opened.splice(0)) await outbox.close();
  rmSync(folder, { recursive: true });
});

async function openOutbox(): Promise<DiskOutbox> {
  const outbox = await DiskOutbox.open({ folder, clock: systemClock, log: silentLog });
  opened.push(outbox);
  return outbox;
}

/** An earlier process has ended these jobs, and died. */
async function leaveOutcomes(...jobIds: string[]): Promise<void> {
  const outbox = await openOutbox();
  for (const jobId of jobIds) {
    const attempt = outbox.addAttempt({ ...leaseRef(jobId), attempt: 2 });
    addChunk(attempt, '"chunk"');
    complete(attempt);
    outbox.notifyChanged(attempt);
  }
  await outbox.flush();
}

async function prepare(): Promise<Script> {
  const destination = {
    write: (line: string) => {
      logged += line;
    },
  };
  const log: Log = createLog({ destination });
  return script({ outbox: await openOutbox(), log });
}

/** Lets the disk do its work, too. */
async function until({ clock }: Script, condition: () => boolean): Promise<void> {
  while (!condition()) await clock.advance(0);
}

const answerAll = (answer: 'applied' | 'superseded' | 'gone') => {
  return async (reports: readonly unknown[]): Promise<ReportReply[]> =>
    reports.map(() => ({ answer }));
};

it('names outcomes of an earlier process in the hello, and delivers them unchanged', async () => {
  await leaveOutcomes('a', 'b');
  const started = await prepare();
  const { link, worker } = started;
  await worker.start();
  expect(link.hellos[0]?.outbox.map(({ jobId, attempt }) => [jobId, attempt])).toEqual([
    ['a', 2],
    ['b', 2],
  ]);
  await until(started, () => worker.health().outboxDepth === 0);
  expect(link.reported).toEqual(['a#1 chunks', 'a#2 completed', 'b#1 chunks', 'b#2 completed']);
  expect(link.reportCalls[0]?.reports[0]).toMatchObject({ attempt: 2, token: 'token-a' });
  expect(logged).toContain('outcome of an earlier process delivered');
});

it('sends no outcomes of an earlier process before the welcome', async () => {
  await leaveOutcomes('a');
  const started = await prepare();
  const { clock, link, worker } = started;
  link.onHello = () => Promise.reject(new LinkError('unavailable', 'not now'));
  void worker.start();
  await clock.advance(60_000);
  expect(link.reportCalls).toEqual([]);
  expect(await worker.drain()).toEqual({
    delivered: false,
    undelivered: [{ ...leaseRef('a'), attempt: 2 }],
    abandoned: 0,
  });
});

it('keeps the leases of outcomes of an earlier process until they are delivered', async () => {
  await leaveOutcomes('a');
  const started = await prepare();
  const { clock, link, worker } = started;
  link.onReport = () => Promise.reject(new LinkError('unavailable', 'not now'));
  await worker.start();
  await clock.advance(0);
  expect(link.lastTake.request.held).toEqual(['token-a']);
  expect(link.lastRenewal.request.leases).toEqual([
    { jobId: 'a', token: 'token-a', stopping: true, delivering: true },
  ]);
  link.onReport = answerAll('applied');
  await clock.advance(10_000);
  await until(started, () => worker.health().outboxDepth === 0);
  link.lastTake.answer([]);
  link.lastRenewal.answer({ ended: [], drain: false });
  await clock.advance(10_000);
  expect(link.lastTake.request.held).toEqual([]);
  expect(link.lastRenewal.request.leases).toEqual([]);
});

it.each(['superseded', 'gone'] as const)(
  'drops an outcome that is %s, with a line in the log',
  async (answer) => {
    await leaveOutcomes('a');
    const started = await prepare();
    const { link, worker } = started;
    link.onReport = answerAll(answer);
    await worker.start();
    await until(started, () => worker.health().outboxDepth === 0);
    expect(logged).toContain('outcome of an earlier process dropped');
    for (const outbox of opened) await outbox.close();
    expect(await readUndelivered(folder)).toEqual([]);
  },
);

it('writes an outcome to disk before it sends it', async () => {
  const started = await prepare();
  const { clock, executor, link, worker } = started;
  await worker.start();
  await clock.advance(0);
  const onDisk: string[] = [];
  link.onReport = async (reports) => {
    onDisk.push(...(await readUndelivered(folder)).map(({ jobId }) => jobId));
    return reports.map(() => ({ answer: 'applied' }));
  };
  link.lastTake.answer([lease('a'), lease('b')]);
  await clock.advance(0);
  for (const execution of executor.executions) execution.complete();
  await until(started, () => link.reported.length === 2 && worker.health().outboxDepth === 0);
  expect(onDisk).toEqual(['a', 'b']);
});

class SlowOutbox extends MemoryOutbox {
  write: () => void = () => {};
  readonly #written = new Promise<void>((resolve) => {
    this.write = resolve;
  });

  override flush(): Promise<void> {
    return this.#written;
  }
}

it('holds an outcome back until it is on disk, but no chunks', async () => {
  const outbox = new SlowOutbox();
  const { clock, executor, link, worker } = script({ outbox });
  await worker.start();
  await clock.advance(0);
  link.lastTake.answer([lease('a')]);
  await clock.advance(0);
  executor.last.sink.chunks({ sizes: [1], bytes: Buffer.from('1') });
  await clock.advance(0);
  executor.last.complete();
  await clock.advance(60_000);
  expect(link.reported).toEqual(['a#1 chunks']);
  outbox.write();
  await clock.advance(0);
  expect(link.reported).toEqual(['a#1 chunks', 'a#2 completed']);
});

it('names an undelivered outcome in the bye, which the next process delivers', async () => {
  const started = await prepare();
  const { clock, executor, link, worker } = started;
  await worker.start();
  await clock.advance(0);
  link.onReport = () => Promise.reject(new LinkError('unavailable', 'not now'));
  link.lastTake.answer([lease('a')]);
  await clock.advance(0);
  executor.last.complete();
  await clock.advance(0);
  const result = worker.drain();
  link.lastTake.answer([]);
  await clock.advance(60_000);
  expect(await result).toMatchObject({ delivered: false, undelivered: [leaseRef('a')] });
  expect(link.byes[0]?.outbox).toEqual([leaseRef('a')]);
  expect(await readUndelivered(folder)).toEqual([leaseRef('a')]);
});

it('is ready when the outbox had to move to memory, and gives the reason', async () => {
  const started = script({ outbox: new MemoryOutbox({ diskError: 'the disk is full' }) });
  await started.worker.start();
  await started.clock.advance(0);
  expect(started.worker.health()).toMatchObject({
    ready: true,
    outboxTrouble: 'the disk is full',
  });
});
