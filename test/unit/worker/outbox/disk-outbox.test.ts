// What the outbox on disk leaves to the next process, on real files; a process that dies is one that
// never ends its outbox.
import {
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';
import { DiskOutbox, type DiskOutboxOptions } from '../../../../src/worker/outbox/disk-outbox.ts';
import { locateJournal, readUndelivered } from '../../../../src/worker/outbox/outbox-entries.ts';
import {
  addChunk,
  complete,
  leaseRef,
  nameReports,
} from '../../../support/workers/outbox-reports.ts';

const BATCH = { maxReports: 1_000, maxBytes: 100_000_000 };
const HEADER_BYTES = 8;

let folder: string;
let logged: string;
let clock: ManualClock;
const opened: DiskOutbox[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-outbox-'));
  logged = '';
  clock = new ManualClock();
});

afterEach(async () => {
  for (const outbox of opened.splice(0)) await outbox.close();
  rmSync(folder, { recursive: true });
});

const destination = {
  write: (line: string) => {
    logged += line;
  },
};
const log = createLog({ destination });

async function openOutbox(
  options: Partial<Omit<DiskOutboxOptions, 'folder'>> = {},
): Promise<DiskOutbox> {
  const outbox = await DiskOutbox.open({ folder, clock, log, ...options });
  opened.push(outbox);
  return outbox;
}

/** An attempt that has ended, after `chunks`, and lies on disk. */
async function endAttempt(outbox: DiskOutbox, jobId: string, chunks: string[] = []) {
  const attempt = outbox.addAttempt(leaseRef(jobId));
  for (const json of chunks) addChunk(attempt, json);
  complete(attempt, `"of ${jobId}"`);
  outbox.notifyChanged(attempt);
  await outbox.flush();
  return attempt;
}

function takeRestored(outbox: DiskOutbox): string[] {
  for (const attempt of outbox.restoredAttempts()) outbox.notifyChanged(attempt);
  return nameReports(outbox.takeBatch(BATCH));
}

const journalBytes = () => statSync(locateJournal(folder)).size;

describe('the outbox on disk', () => {
  it('passes ended attempts to the next process with the numbers of their reports', async () => {
    const before = await openOutbox();
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    const attempt = before.addAttempt({ jobId: 'a', attempt: 3, token: 'token-a', traceparent });
    addChunk(attempt, '"first"');
    before.notifyChanged(attempt);
    before.takeBatch(BATCH);
    attempt.acknowledge(1);
    addChunk(attempt, '"second"');
    complete(attempt, '"out"');
    before.notifyChanged(attempt);
    await before.flush();

    const after = await openOutbox();
    const [restored] = after.restoredAttempts();
    expect(restored?.lease).toEqual({ jobId: 'a', attempt: 3, token: 'token-a' });
    if (restored) after.notifyChanged(restored);
    const [chunks, outcome] = after.takeBatch(BATCH).map(({ report }) => report);
    expect(chunks).toMatchObject({ attempt: 3, token: 'token-a', seq: 2, first: 1, sizes: [8] });
    expect(Buffer.from(chunks?.body ?? []).toString()).toBe('"second"');
    expect(outcome).toMatchObject({ seq: 3, outcome: { kind: 'completed', executionMs: 7 } });
    expect(Buffer.from(outcome?.body ?? []).toString()).toBe('"out"');
    expect([chunks?.traceparent, outcome?.traceparent]).toEqual([traceparent, traceparent]);
  });

  it('does not pass on running attempts', async () => {
    const before = await openOutbox();
    const attempt = before.addAttempt(leaseRef('running'));
    addChunk(attempt, '1');
    before.notifyChanged(attempt);
    await endAttempt(before, 'ended');
    expect(before.undeliveredOnDisk()).toEqual([leaseRef('ended')]);
    const after = await openOutbox();
    expect(after.undeliveredOnDisk()).toEqual([leaseRef('ended')]);
    expect(await readUndelivered(folder)).toEqual([leaseRef('ended')]);
  });

  it('has written an outcome to disk before it counts as stored', async () => {
    const outbox = await openOutbox();
    const attempt = outbox.addAttempt(leaseRef('a'));
    complete(attempt);
    expect(outbox.flush()).toBeUndefined();
    outbox.notifyChanged(attempt);
    const flushed = outbox.flush();
    expect(flushed).toBeInstanceOf(Promise);
    await flushed;
    expect(await readUndelivered(folder)).toEqual([leaseRef('a')]);
    expect(outbox.flush()).toBeUndefined();
  });

  it('shows outcomes before a hole of 2 GB to other processes', async () => {
    await endAttempt(await openOutbox(), 'a');
    truncateSync(locateJournal(folder), 2 * 1_073_741_824);
    expect(await readUndelivered(folder)).toEqual([leaseRef('a')]);
  });

  it('forgets removed attempts, and clears the journal when none is left', async () => {
    const outbox = await openOutbox();
    const [a, b] = [await endAttempt(outbox, 'a'), await endAttempt(outbox, 'b')];
    outbox.removeAttempt(a);
    await endAttempt(outbox, 'c');
    expect(await readUndelivered(folder)).toEqual([leaseRef('b'), leaseRef('c')]);
    outbox.removeAttempt(b);
    for (const lease of outbox.undeliveredOnDisk()) expect(lease).toEqual(leaseRef('c'));
    await outbox.close();
    const next = await openOutbox();
    for (const attempt of next.restoredAttempts()) next.removeAttempt(attempt);
    await next.close();
    expect(journalBytes()).toBe(HEADER_BYTES);
  });

  it('writes nothing after it was closed', async () => {
    const outbox = await openOutbox();
    const attempt = await endAttempt(outbox, 'a');
    await outbox.close();
    outbox.removeAttempt(attempt);
    await outbox.close();
    expect(outbox.diskError).toBeUndefined();
    expect(logged).toBe('');
  });

  it('does not write an attempt that was settled before its turn came', async () => {
    const outbox = await openOutbox();
    const attempt = outbox.addAttempt(leaseRef('a'));
    complete(attempt);
    outbox.notifyChanged(attempt);
    outbox.removeAttempt(attempt);
    await outbox.close();
    expect(journalBytes()).toBe(HEADER_BYTES);
  });

  it('remembers that the reports before the outcome are no longer needed', async () => {
    const before = await openOutbox();
    const attempt = before.addAttempt(leaseRef('a'));
    addChunk(attempt, '1');
    attempt.mute();
    complete(attempt);
    before.notifyChanged(attempt);
    await before.flush();
    const after = await openOutbox();
    expect(takeRestored(after)).toEqual(['a#2 outcome {}']);
    expect(after.restoredAttempts()[0]?.resendFrom(1)).toBe(true);
  });

  it('is compacted when most of it is obsolete', async () => {
    const outbox = await openOutbox({ compactAboveBytes: 20_000 });
    const large = JSON.stringify('x'.repeat(9_000));
    const kept = await endAttempt(outbox, 'kept', ['1', '2']);
    for (const id of ['a', 'b', 'c', 'd'])
      outbox.removeAttempt(await endAttempt(outbox, id, [large]));
    await endAttempt(outbox, 'last');
    expect(journalBytes()).toBeLessThan(20_000);
    const after = await openOutbox();
    expect(after.undeliveredOnDisk()).toEqual([kept.lease, leaseRef('last')]);
    expect(takeRestored(after)).toEqual([
      'kept#1 chunks 1,2',
      'kept#2 outcome "of kept"',
      'last#1 outcome "of last"',
    ]);
  });

  it('keeps the attempts of an earlier process until they are removed', async () => {
    await endAttempt(await openOutbox(), 'a');
    const second = await openOutbox();
    await endAttempt(second, 'b');
    const third = await openOutbox();
    expect(third.undeliveredOnDisk()).toEqual([leaseRef('a'), leaseRef('b')]);
    expect(third.undelivered()).toEqual([leaseRef('a'), leaseRef('b')]);
    expect(third.depth).toBe(2);
  });
});

describe('a truncated journal', () => {
  it('returns all complete attempts, wherever it is cut', async () => {
    const outbox = await openOutbox();
    await endAttempt(outbox, 'a', ['"chunk"']);
    const oneBytes = journalBytes();
    await endAttempt(outbox, 'b', ['"chunk"']);
    const whole = readFileSync(locateJournal(folder));
    for (let bytes = whole.length; bytes >= 0; bytes -= 7) {
      writeFileSync(locateJournal(folder), whole.subarray(0, bytes));
      const after = await openOutbox();
      const wanted = bytes === whole.length ? ['a', 'b'] : bytes >= oneBytes ? ['a'] : [];
      expect(after.undeliveredOnDisk().map(({ jobId }) => jobId)).toEqual(wanted);
      await after.close();
    }
    expect(logged).toContain('incomplete end of the outbox removed');
  });

  it('logs that an attempt without an outcome is dropped', async () => {
    await endAttempt(await openOutbox(), 'a', ['"chunk"']);
    truncateSync(locateJournal(folder), journalBytes() - 1);
    const outbox = await openOutbox();
    expect(outbox.undeliveredOnDisk()).toEqual([]);
    expect(logged).toContain('attempts without an outcome dropped from the outbox');
    await outbox.close();
    expect(journalBytes()).toBe(HEADER_BYTES);
  });

  it('is continued after its last complete entry', async () => {
    await endAttempt(await openOutbox(), 'a');
    truncateSync(locateJournal(folder), journalBytes() + 100);
    await endAttempt(await openOutbox(), 'b');
    expect((await openOutbox()).undeliveredOnDisk()).toEqual([leaseRef('a'), leaseRef('b')]);
  });

  it('ends at the first corrupt byte', async () => {
    const outbox = await openOutbox();
    await endAttempt(outbox, 'a');
    const oneBytes = journalBytes();
    await endAttempt(outbox, 'b');
    const bytes = readFileSync(locateJournal(folder));
    bytes[oneBytes + 40] = (bytes[oneBytes + 40] ?? 0) ^ 1;
    writeFileSync(locateJournal(folder), bytes);
    expect((await openOutbox()).undeliveredOnDisk()).toEqual([leaseRef('a')]);
  });
});

describe('a journal larger than the read bound', () => {
  const TOO_LARGE = 'outbox is too large, only a part is read; the file stays';
  const ids = (outbox: DiskOutbox) => outbox.restoredAttempts().map(({ lease }) => lease.jobId);

  async function leave(...jobIds: string[]) {
    const outbox = await openOutbox();
    for (const id of jobIds) await endAttempt(outbox, id, [JSON.stringify('x'.repeat(9_000))]);
    await outbox.close();
  }

  it('is read up to the bound; the next process reads the rest', async () => {
    await leave('a', 'b', 'c');
    const first = await openOutbox({ maxRestoredBytes: 20_000, compactAboveBytes: 1 });
    expect(ids(first)).toEqual(['a', 'b']);
    expect(first.undeliveredOnDisk()).toEqual(['a', 'b', 'c'].map(leaseRef));
    expect(first.isPartlyRead).toBe(true);
    expect(logged).toContain(
      `"path":"${locateJournal(folder)}","maxBytes":20000,"msg":"${TOO_LARGE}"`,
    );
    for (const attempt of first.restoredAttempts()) first.removeAttempt(attempt);
    await endAttempt(first, 'd');
    await first.close();

    const second = await openOutbox();
    expect(ids(second)).toEqual(['c', 'd']);
    expect(second.isPartlyRead).toBe(false);
    expect(takeRestored(second)[1]).toBe('c#2 outcome "of c"');
  });

  it('keeps the rest when all read outcomes are delivered', async () => {
    await leave('a', 'b');
    const first = await openOutbox({ maxRestoredBytes: 10_000 });
    for (const attempt of first.restoredAttempts()) first.removeAttempt(attempt);
    await first.close();
    expect(await readUndelivered(folder)).toEqual([leaseRef('b')]);
  });

  it('yields at least its first attempt, however large that is', async () => {
    await leave('a', 'b');
    expect(ids(await openOutbox({ maxRestoredBytes: 1 }))).toEqual(['a']);
  });

  it('is read up to a bound of its headers', async () => {
    await leave('a', 'b', 'c');
    const first = await openOutbox({ maxHeaderBytes: 400 });
    expect(ids(first)).toEqual(['a']);
    expect(first.isPartlyRead).toBe(true);
    expect(logged).toContain(TOO_LARGE);
    for (const attempt of first.restoredAttempts()) first.removeAttempt(attempt);
    await first.close();
    expect(ids(await openOutbox())).toEqual(['b', 'c']);
  });

  it('shows a bounded number of attempts to other processes', async () => {
    const stack = 'x'.repeat(2 * 1_048_576);
    const outbox = await openOutbox();
    const jobIds = Array.from({ length: 18 }, (_, n) => `job-${n}`);
    for (const id of jobIds) {
      const attempt = outbox.addAttempt(leaseRef(id));
      const error = { code: 'handler_error', message: 'no', stack } as const;
      const outcome = { kind: 'failed', executionMs: 7, error, retry: 'never' } as const;
      attempt.addOutcome({ outcome, output: undefined });
      outbox.notifyChanged(attempt);
    }
    await outbox.close();
    expect(await readUndelivered(folder, log)).toEqual(jobIds.slice(0, 15).map(leaseRef));
    expect(logged).toContain(TOO_LARGE);
    expect(logged).toContain(locateJournal(folder));
  });
});

describe('an outbox whose disk fails', () => {
  it('works in memory, gives the reason, and leaves a file alone that is not a journal', async () => {
    writeFileSync(locateJournal(folder), 'something else');
    const outbox = await openOutbox();
    expect(outbox.diskError).toContain('this version cannot read the journal');
    const attempt = await endAttempt(outbox, 'a');
    expect(nameReports(outbox.takeBatch(BATCH))).toEqual(['a#1 outcome "of a"']);
    expect(outbox.undeliveredOnDisk()).toEqual([]);
    outbox.removeAttempt(attempt);
    await outbox.close();
    expect(readFileSync(locateJournal(folder), 'utf8')).toBe('something else');
    expect(logged).toContain('undelivered outcomes are in memory only');
  });

  it.runIf(process.platform === 'linux')('works in memory when it is full at start', async () => {
    symlinkSync('/dev/full', locateJournal(folder));
    const outbox = await openOutbox();
    expect(outbox.diskError).toContain('ENOSPC');
    await endAttempt(outbox, 'a');
    expect(nameReports(outbox.takeBatch(BATCH))).toEqual(['a#1 outcome "of a"']);
    await outbox.close();
  });

  it('works in memory if the folder is not a folder', async () => {
    writeFileSync(join(folder, 'file'), '');
    const outbox = await DiskOutbox.open({
      folder: join(folder, 'file'),
      clock,
      log: createLog({ level: 'silent' }),
    });
    expect(outbox.diskError).toContain('ENOTDIR');
  });
});
