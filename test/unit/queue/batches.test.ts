// Batches: what becomes of their jobs when they are cancelled, expire, are retried or removed, and over restarts.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { OWN_FORM } from '../../../src/api/batch-form.ts';
import { StoreUnavailableError } from '../../../src/store/store.ts';
import { BATCH_LIMITS } from '../../../src/wire/job/batch.ts';
import { completed, ENDPOINT, failed, Hand, Platform } from '../../support/queue-platform.ts';

const HOUR = 3_600_000;

let platform: Platform;
let worker: Hand;

beforeEach(async () => {
  platform = new Platform({ endpoint: { maxQueued: 5_000 } });
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT), { slots: 1_000 });
  await worker.hello();
});

afterEach(() => platform.close());

const key = (id: string) => ({ endpointId: ENDPOINT, id });

async function* bytesOf(text: string, pieceBytes = 1_000): AsyncGenerator<Buffer> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    yield bytes.subarray(at, at + pieceBytes);
  }
}

const lineOf = (n: number) => JSON.stringify({ id: `line-${n}`, input: { n } });
const linesOf = (count: number) => Array.from({ length: count }, (_, n) => lineOf(n)).join('\n');

function upload(text: string) {
  const file = { endpointId: ENDPOINT, name: 'lines.jsonl', form: OWN_FORM };
  return platform.queue.files.upload(file, bytesOf(text));
}

async function start(lines: number, windowMs?: number): Promise<string> {
  const file = await upload(linesOf(lines));
  const { batches } = platform.queue;
  const { id } = await batches.create({ endpointId: ENDPOINT, fileId: file.id, windowMs });
  await platform.clock.advance(0);
  return id;
}

const read = (id: string) => platform.queue.batches.read(key(id));

/** Lets the feeder work until nothing changes. */
async function settle(id: string) {
  for (let before = ''; ; ) {
    await platform.clock.advance(0);
    const batch = await read(id);
    const now = JSON.stringify(batch);
    if (now === before) return batch;
    before = now;
  }
}

async function readResults(id: string): Promise<Record<string, unknown>[]> {
  const { errors, output } = await read(id);
  const all: Record<string, unknown>[] = [];
  for (const file of [output, errors]) {
    const parts: Uint8Array[] = [];
    for (let index = 0; index < file.parts; index++) {
      parts.push((await platform.queue.files.part(key(file.id), index)) ?? expect.fail('no part'));
    }
    const text = Buffer.concat(parts).toString().trimEnd();
    if (text !== '') all.push(...text.split('\n').map((line) => JSON.parse(line)));
  }
  return all;
}

const namesOf = (results: readonly Record<string, unknown>[]) =>
  results.map(({ id }) => id).toSorted();
const allNames = (count: number) => Array.from({ length: count }, (_, n) => `line-${n}`).toSorted();

describe('a batch', () => {
  it('keeps a bounded number of jobs live, below the priority of all others', async () => {
    const id = await start(1_200);
    expect((await settle(id)).live).toHaveLength(BATCH_LIMITS.liveJobs);
    expect((await platform.health()).jobs.inQueue).toBe(BATCH_LIMITS.liveJobs);
    const other = await platform.submit({ priority: -1 });
    expect((await worker.takeOne()).jobId).toBe(other);
    const leases = await worker.take({ max: 100 });
    for (const lease of leases) await worker.finish(lease, completed, { body: '1' });
    expect(await settle(id)).toMatchObject({ completed: 100, failed: 0, line: 612 });
  });

  it('leaves space in the queue to others', async () => {
    await platform.store.write((tx) => {
      const endpoint = tx.endpoint(ENDPOINT) ?? expect.fail('no endpoint');
      tx.putEndpoint({ ...endpoint, settings: { ...endpoint.settings, maxQueued: 100 } });
    });
    const id = await start(300);
    await settle(id);
    expect((await platform.health()).jobs.inQueue).toBeLessThan(100);
    await platform.submit();
  });

  it('writes one result for each line over restarts', async () => {
    const id = await start(700);
    for (let restarts = 0; (await read(id)).endedAt === null; restarts++) {
      const leases = await worker.take({ max: 40 });
      await Promise.all(leases.map((lease) => worker.finish(lease, completed, { body: '{}' })));
      if (restarts % 3 === 0) await platform.restart();
      await platform.clock.advance(0);
      if (restarts > 1_000) expect.fail('the batch does not end');
    }
    expect(await read(id)).toMatchObject({ state: 'completed', completed: 700, failed: 0 });
    expect(namesOf(await readResults(id))).toEqual(allNames(700));
  });

  it('counts a failed job in its file of failures, once, and refuses its retry', async () => {
    const id = await start(1);
    const lease = await worker.takeOne();
    await worker.finish(lease, { ...failed, retry: 'never' });
    expect(await settle(id)).toMatchObject({ state: 'completed', completed: 0, failed: 1 });
    const retried = platform.queue.jobs.retry(key(lease.jobId));
    await expect(retried).rejects.toThrow(/its batch has its result/);
    const [result] = await readResults(id);
    expect(result).toMatchObject({ id: 'line-0', job: { status: 'FAILED' } });
  });

  it('names its files of results after itself', async () => {
    const id = await start(2);
    await worker.finish(await worker.takeOne(), completed, { body: '1' });
    await worker.finish(await worker.takeOne(), { ...failed, retry: 'never' });
    await settle(id);
    const listing = { endpointId: ENDPOINT, before: undefined, limit: 9 };
    const { files } = await platform.queue.files.list(listing);
    const names = files.filter(({ purpose }) => purpose === 'batch_output').map(({ name }) => name);
    expect(names.toSorted()).toEqual([`${id}_error.jsonl`, `${id}_output.jsonl`]);
  });

  it('gives up what has not ended when it is cancelled', async () => {
    const id = await start(1_500);
    const [first, second] = await worker.take({ max: 2 });
    if (!first || !second) return expect.fail('no jobs');
    await worker.finish(first, completed, { body: '1' });
    await settle(id);
    expect(await platform.queue.batches.cancel(key(id))).toMatchObject({ state: 'cancelling' });
    const batch = await settle(id);
    expect(batch).toMatchObject({ state: 'cancelled', completed: 1, failed: 1_499, live: [] });
    const results = await readResults(id);
    expect(namesOf(results)).toEqual(allNames(1_500));
    const codes = new Set(results.slice(1).map(({ error }) => Object(error).code));
    expect([...codes]).toEqual(['batch_cancelled']);
    expect((await platform.health()).jobs.inQueue).toBe(0);
    expect((await platform.job(second.jobId)).status).toBe('CANCELLED');
    expect(await platform.queue.batches.cancel(key(id))).toMatchObject({ state: 'cancelled' });
  });

  it('goes on although another one cannot', async () => {
    const file = await upload(linesOf(2));
    const lost = await upload(linesOf(2));
    await platform.store.write((tx) => tx.removeFileParts(key(lost.id), 9));
    const { batches } = platform.queue;
    await batches.create({ endpointId: ENDPOINT, fileId: lost.id });
    const { id } = await batches.create({ endpointId: ENDPOINT, fileId: file.id });
    await platform.clock.advance(0);
    expect(await settle(id)).toMatchObject({ live: [1, 2] });
  });

  it('expires at the end of its window', async () => {
    const id = await start(600, HOUR);
    await platform.clock.advance(HOUR - 1);
    expect((await settle(id)).state).toBe('running');
    await platform.clock.advance(1);
    expect(await settle(id)).toMatchObject({ state: 'expired', completed: 0, failed: 600 });
    const [result] = await readResults(id);
    expect(result).toMatchObject({ error: { code: 'batch_expired' } });
    await expect(platform.queue.batches.cancel(key(id))).rejects.toThrow(/is expired/);
  });

  it('has a result for a job that was purged', async () => {
    const id = await start(3);
    expect(await platform.queue.jobs.purge(ENDPOINT)).toBe(3);
    expect(await settle(id)).toMatchObject({ state: 'completed', failed: 3 });
    expect(namesOf(await readResults(id))).toEqual(allNames(3));
  });

  it('has a line of 1 MB and an output of 2 MB', async () => {
    const text = 'x'.repeat(1_000_000);
    const file = await upload(JSON.stringify({ id: 'large', input: { text } }));
    const { id } = await platform.queue.batches.create({ endpointId: ENDPOINT, fileId: file.id });
    await settle(id);
    const lease = await worker.takeOne();
    expect(JSON.parse(Buffer.from(lease.input).toString())).toEqual({ text });
    const output = JSON.stringify(text + text);
    await worker.finish(lease, completed, { body: output });
    await settle(id);
    const [result] = await readResults(id);
    expect(Object(result?.['job']).output).toBe(text + text);
  });

  it('goes with its endpoint', async () => {
    const id = await start(600);
    await worker.finish(await worker.takeOne(), completed, { body: '1' });
    const { fileId, output } = await settle(id);
    expect(output.parts).toBe(1);
    await platform.store.write((tx) => {
      const endpoint = tx.endpoint(ENDPOINT) ?? expect.fail('no endpoint');
      tx.putEndpoint({ ...endpoint, deleted: true });
    });
    const dropped = platform.queue.removal.drop(ENDPOINT, new AbortController().signal);
    expect(await dropped).toBe(true);
    const left = await platform.store.read((tx) => [
      tx.fileParts(key(fileId)),
      tx.fileParts(key(output.id)),
      tx.resources({ kind: 'batch_end', parent: id, limit: 10 }).length,
    ]);
    expect(left).toEqual([0, 0, 0]);
  });
});

describe('the result of a job', () => {
  it('is written although the retention of the job is over, when the platform was away', async () => {
    const id = await start(1);
    const lease = await worker.takeOne();
    // The platform dies between the end of the job and the commit of the result.
    const record = vi.spyOn(platform.queue.jobs, 'record');
    record.mockRejectedValue(new StoreUnavailableError('the disk is slow'));
    await worker.finish(lease, completed, { body: '7' });
    await platform.clock.advance(0);
    expect(await read(id)).toMatchObject({ completed: 0, live: [1] });
    await platform.restart(48 * HOUR);
    const batch = await settle(id);
    expect(batch.completed + batch.failed).toBe(1);
    expect(await readResults(id)).toMatchObject([{ id: 'line-0', job: { output: 7 } }]);
  });
});

describe('an upload', () => {
  it('that is broken off leaves nothing', async () => {
    const source = async function* () {
      yield Buffer.from(`${linesOf(10_000)}\n`);
      throw new Error('the client has gone');
    };
    const file = { endpointId: ENDPOINT, name: 'lines.jsonl', form: OWN_FORM };
    await expect(platform.queue.files.upload(file, source())).rejects.toThrow(/has gone/);
    await platform.clock.advance(0);
    await platform.clock.advance(0);
    const left = await platform.store.read((tx) =>
      ['file', 'file_upload', 'file_removed'].map(
        (kind) => tx.resources({ kind, limit: 9 }).length,
      ),
    );
    expect(left).toEqual([0, 0, 0]);
  });

  it('is refused beyond 50,000 lines', async () => {
    const text = `${linesOf(BATCH_LIMITS.lines)}\n${lineOf(BATCH_LIMITS.lines)}`;
    await expect(upload(text)).rejects.toThrow(/line 50001: the file has more than 50000 lines/);
  });

  it('is refused with too many blank lines', async () => {
    const text = `${lineOf(0)}\n${'\n'.repeat(2 * BATCH_LIMITS.lines)}`;
    await expect(upload(text)).rejects.toThrow(/line 100001: .* blank/);
  });

  it('leaves nothing when its endpoint is removed meanwhile', async () => {
    const { queue, store } = platform;
    let id = '';
    const bytes = Buffer.from(linesOf(20_000));
    const source = async function* () {
      yield bytes.subarray(0, bytes.length / 2);
      const [row] = await store.read((tx) => tx.resources({ kind: 'file_upload', limit: 1 }));
      id = row?.id ?? expect.fail('no upload');
      while (!(await queue.files.dropSome(ENDPOINT)));
      yield bytes.subarray(bytes.length / 2);
    };
    const file = { endpointId: ENDPOINT, name: 'lines.jsonl', form: OWN_FORM };
    await expect(queue.files.upload(file, source())).rejects.toMatchObject({ code: 'not_found' });
    await platform.clock.advance(0);
    expect(await store.read((tx) => tx.fileParts(key(id)))).toBe(0);
  });

  it('expires', async () => {
    const file = await upload(linesOf(2));
    await platform.restart(BATCH_LIMITS.retentionMs.default + HOUR);
    await platform.clock.advance(0);
    await expect(platform.queue.files.read(key(file.id))).rejects.toThrow(/not found/);
    expect(await platform.store.read((tx) => tx.fileParts(key(file.id)))).toBe(0);
  });
});

describe('a draft', () => {
  it('gets lines from one request at a time', async () => {
    const { files } = platform.queue;
    const head = { endpointId: ENDPOINT, name: 'draft.jsonl', form: OWN_FORM, isDraft: true };
    const draft = key((await files.upload(head, bytesOf(lineOf(0)))).id);
    const [begun, sent] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const slow = files.append(draft, async function* () {
      begun.resolve();
      await sent.promise;
      yield Buffer.from(lineOf(1));
    });
    const add = () => files.append(draft, (lines) => bytesOf(lineOf(lines)));
    await begun.promise;
    await expect(add()).rejects.toThrow(/another request adds lines/);
    sent.resolve();
    expect(await slow).toMatchObject({ lines: 2 });
    expect(await add()).toMatchObject({ lines: 3, isDraft: true });
    expect(await files.read(draft)).toMatchObject({ lines: 3 });
  });
});
