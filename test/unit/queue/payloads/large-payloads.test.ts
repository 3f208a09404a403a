// Large inputs and outputs: stored in parts before the operation that needs them, and deleted if none uses them.
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { LargePayloads, PayloadPieces } from '../../../../src/queue/payloads/large-payloads.ts';
import {
  completed,
  ENDPOINT,
  failed,
  Hand,
  outcomeOf,
  Platform,
} from '../../../support/queue-platform.ts';
import { makeJob } from '../../../support/store/stored-jobs.ts';

const PART = 1_000;
const LARGE = JSON.stringify({ text: 'x'.repeat(10 * PART) });

let platform: Platform;
let worker: Hand;

beforeEach(async () => {
  platform = new Platform({
    settings: { payloadPartBytes: PART },
    endpoint: { maxQueued: 2 },
  });
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
});

afterEach(() => platform.close());

const submit = () => platform.submit({}, Buffer.from(LARGE));
const listUnused = () => platform.store.read((tx) => tx.unusedPayloads(10));

function openPayloads(): LargePayloads {
  const { queue, store } = platform;
  return new LargePayloads({ store, settings: queue.settings });
}

async function untilUploading(): Promise<void> {
  while ((await listUnused()).length === 0) await nextTurn();
}

/** Lets the sweeper delete what no job has. It does not wait for its next regular pass. */
async function sweep(): Promise<void> {
  await platform.clock.advance(1_000);
  for (let pass = 0; pass < 200 && (await listUnused()).length > 0; pass++) {
    await platform.clock.advance(1);
  }
}

describe('a large input', () => {
  it('reaches the worker, whether a take waits or comes later', async () => {
    const taken = worker.takeOne({ waitMs: 10_000 });
    await submit();
    const first = await taken;
    await submit();
    const second = await worker.takeOne();
    for (const { input } of [first, second]) expect(Buffer.from(input).toString()).toBe(LARGE);
    expect(await listUnused()).toEqual([]);
  });

  it('waits for the disk with its job, not with each part', async () => {
    const write = platform.store.write.bind(platform.store);
    const waits: string[] = [];
    platform.store.write = (operation, options) => {
      waits.push(options?.onDisk ?? 'commit');
      return write(operation, options);
    };
    await submit();
    const parts = Math.ceil(LARGE.length / PART);
    expect(waits).toEqual([...Array(parts).fill('later'), 'commit']);
  });

  it('is not stored if the submission is refused at once', async () => {
    await Promise.all([platform.submit(), platform.submit()]);
    const uploads: unknown[] = [];
    const refused = submit().catch((error: unknown) => error);
    for (let turn = 0; turn < 20; turn++) {
      uploads.push(...(await listUnused()));
      await nextTurn();
    }
    expect(await refused).toMatchObject({ code: 'queue_full' });
    expect(uploads).toEqual([]);
  });

  it('is deleted if the submission is refused in the end', async () => {
    const refused = submit().catch((error: unknown) => error);
    await untilUploading();
    await Promise.all([platform.submit(), platform.submit()]);
    expect(await refused).toMatchObject({ code: 'queue_full' });
    expect(await listUnused()).toHaveLength(1);
    await sweep();
    expect(await listUnused()).toEqual([]);
  });

  it('belongs to one of two submissions with the same idempotency key', async () => {
    const submission = {
      ...{ endpointId: ENDPOINT, mode: 'run' as const, policy: {}, input: Buffer.from(LARGE) },
      idempotency: { key: 'k', requestHash: 'h' },
    };
    const { submissions } = platform.queue;
    const jobs = await Promise.all([
      submissions.submit(submission),
      submissions.submit(submission),
    ]);
    expect(jobs[0]).toEqual(jobs[1]);
    await sweep();
    expect(await listUnused()).toEqual([]);
    expect(Buffer.from((await worker.takeOne()).input).toString()).toBe(LARGE);
  });

  it('is deleted by the next platform if one was killed while it was stored', async () => {
    const lost = platform.store.write((tx) =>
      tx.beginPayload('input', { endpointId: ENDPOINT, id: 'lost' }, Buffer.from('{')),
    );
    await lost;
    await platform.restart();
    await platform.clock.advance(1);
    expect(await listUnused()).toEqual([]);
  });

  it('is deleted in steps after its job has expired', async () => {
    const id = await platform.submit(
      { ttl: 10_000 },
      Buffer.from(JSON.stringify({ text: 'x'.repeat(3_000_000) })),
    );
    await platform.clock.advance(10_000);
    await expect(platform.job(id)).rejects.toThrow('not found');
    await sweep();
    expect(await listUnused()).toEqual([]);
    const key = { endpointId: ENDPOINT, id };
    expect(await platform.store.read((tx) => tx.payloadPart('input', key, 0))).toBeUndefined();
  });
});

describe('an upload', () => {
  it('is not deleted before its operation has ended', async () => {
    const { store } = platform;
    const payloads = openPayloads();
    const key = { endpointId: ENDPOINT, id: 'a' };
    const upload = await payloads.upload({ kind: 'input', key, bytes: Buffer.from(LARGE) });
    expect(await payloads.deleteSome()).toBe(false);
    await store.write((tx) => tx.insertJob(makeJob(key), upload));
    payloads.release(upload);
    expect(await payloads.deleteSome()).toBe(false);
    expect(await payloads.read('input', key, LARGE.length)).toEqual(Buffer.from(LARGE));
    expect(await payloads.read('input', key, LARGE.length + 1)).toBeUndefined();
  });
});

describe('a deletion', () => {
  const begin = (id: number, bytes: number) =>
    platform.store.write((tx) =>
      tx.beginPayload('input', { endpointId: ENDPOINT, id: `${id}` }, new Uint8Array(bytes)),
    );
  const countUnused = async () =>
    (await platform.store.read((tx) => tx.unusedPayloads(1_000))).length;

  it('deletes many small payloads at once', async () => {
    for (let id = 0; id < 50; id++) await begin(id, 10);
    expect(await openPayloads().deleteSome()).toBe(true);
    expect(await countUnused()).toBe(0);
  });

  it('deletes many small rows of one payload at once', async () => {
    const job = makeJob({ endpointId: ENDPOINT, id: 'a' });
    await platform.store.write((tx) => {
      for (let first = 0; first < 300; first++) {
        const batch = { first, sizes: [1], bytes: Buffer.from('1') };
        tx.appendChunks({ endpointId: ENDPOINT, id: 'a', attempt: 1 }, batch);
      }
      tx.dropChunks(job);
    });
    expect(await countUnused()).toBe(1);
    expect(await openPayloads().deleteSome()).toBe(true);
    expect(await countUnused()).toBe(0);
  });

  it('ends after about 2 MB', async () => {
    for (let id = 0; id < 5; id++) await begin(id, 1_000_000);
    await openPayloads().deleteSome();
    expect(await countUnused()).toBe(2);
  });

  it('ends after 128 payloads, however small they are', async () => {
    for (let id = 0; id < 130; id++) await begin(id, 10);
    await openPayloads().deleteSome();
    expect(await countUnused()).toBe(2);
  });
});

describe('a large output', () => {
  it('does not wait for the inputs of other endpoints', async () => {
    const payloads = openPayloads();
    const ended: string[] = [];
    const upload = (kind: 'input' | 'output', endpointId: string, id: string) =>
      payloads
        .upload({ kind, key: { endpointId, id }, bytes: Buffer.from(LARGE) })
        .then(() => ended.push(kind));
    const inputs = Array.from({ length: 5 }, (_, id) => upload('input', 'other', `${id}`));
    await Promise.all([...inputs, upload('output', ENDPOINT, 'a')]);
    expect(ended).toEqual(['output', 'input', 'input', 'input', 'input', 'input']);
  });

  it('may take longer than the deadline of its attempt', async () => {
    const id = await platform.submit({ executionTimeout: 1_000 });
    const lease = await worker.takeOne();
    const body = JSON.stringify('x'.repeat(1_000 * PART));
    const reported = worker.finish(lease, completed, { body });
    await untilUploading();
    expect(await platform.job(id)).toMatchObject({ status: 'IN_PROGRESS', deadlineAt: null });
    await platform.clock.advance(12_000);
    expect(await reported).toEqual({ answer: 'applied' });
    expect((await platform.record(id)).status).toBe('COMPLETED');
  });

  it('is in the record of its job', async () => {
    const id = await submit();
    const reply = await worker.finish(await worker.takeOne(), completed, { body: LARGE });
    expect(reply).toEqual({ answer: 'applied' });
    expect((await platform.record(id)).output).toEqual(JSON.parse(LARGE));
    expect(await listUnused()).toEqual([]);
  });

  it('goes to the client that waits for it without being read back', async () => {
    const id = await submit();
    const read = vi.spyOn(LargePayloads.prototype, 'read');
    const key = { endpointId: ENDPOINT, id };
    const lease = await worker.takeOne();
    const outputReads = () => read.mock.calls.filter(([kind]) => kind === 'output').length;
    const waiting = platform.queue.jobs.waitForEnd(key, 60_000, new AbortController().signal);
    expect(await worker.finish(lease, completed, { body: LARGE })).toEqual({ answer: 'applied' });
    expect(JSON.parse((await waiting).body.toString()).output).toEqual(JSON.parse(LARGE));
    expect(outputReads()).toBe(0);
    expect((await platform.record(id)).output).toEqual(JSON.parse(LARGE));
    expect(outputReads()).toBe(1);
    read.mockRestore();
  });

  it('is not kept for a client that has gone', async () => {
    const id = await submit();
    const key = { endpointId: ENDPOINT, id };
    const lease = await worker.takeOne();
    const gone = new AbortController();
    const waiting = platform.queue.jobs.untilEnd(key, 60_000, gone.signal);
    const reported = worker.finish(lease, completed, { body: LARGE });
    await waiting;
    let isReported = false;
    void reported.then(() => {
      isReported = true;
    });
    for (let turn = 0; turn < 20; turn++) await nextTurn();
    expect(isReported).toBe(false);
    await platform.clock.advance(50);
    expect(await reported).toEqual({ answer: 'applied' });
    expect((await platform.record(id)).output).toEqual(JSON.parse(LARGE));
  });

  it('is deleted if the job is cancelled while it is stored', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    const reported = worker.finish(lease, completed, { body: LARGE });
    await untilUploading();
    await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id });
    expect(await reported).toEqual({ answer: 'applied' });
    expect(await platform.record(id)).toMatchObject({ status: 'CANCELLED' });
    await sweep();
    expect(await listUnused()).toEqual([]);
  });

  it('is refused from an attempt that has lost its lease; the next attempt has its own', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    const late = worker.finish(lease, completed, { body: LARGE });
    await untilUploading();
    const other = new Hand(() => platform.queue.link(ENDPOINT), { id: 'w2' });
    await other.hello();
    await worker.bye('crashed');
    const again = await other.takeOne();
    const output = LARGE.replaceAll('x', 'y');
    const [refused, applied] = await Promise.all([
      late,
      other.finish(again, completed, { body: output }),
    ]);
    expect([refused.answer, applied.answer]).toEqual(['superseded', 'applied']);
    expect((await platform.record(id)).output).toEqual(JSON.parse(output));
    await sweep();
    expect(await listUnused()).toEqual([]);
    expect((await platform.record(id)).output).toEqual(JSON.parse(output));
  });

  it('is stored once if it is reported twice at a time', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    const report = outcomeOf(lease, 1, completed, LARGE);
    const replies = await Promise.all([worker.reportOne(report), worker.reportOne(report)]);
    expect(replies.map(({ answer }) => answer)).toEqual(['applied', 'duplicate']);
    expect((await platform.record(id)).output).toEqual(JSON.parse(LARGE));
    await sweep();
    expect(await listUnused()).toEqual([]);
  });

  it('comes after the reports before it in the same message', async () => {
    const id = await platform.submit();
    const lease = await worker.takeOne();
    const log = { ...outcomeOf(lease, 1, failed), kind: 'log', dropped: 0 } as const;
    const replies = await worker.report([
      { ...log, body: Buffer.from('line\n') },
      outcomeOf(lease, 2, completed, LARGE),
    ]);
    expect(replies.map(({ answer }) => answer)).toEqual(['applied', 'applied']);
    expect((await platform.record(id)).status).toBe('COMPLETED');
  });
});

describe('the pieces of a payload', () => {
  function createRecorder() {
    const pieces = new PayloadPieces();
    const order: string[] = [];
    const run = (kind: 'input' | 'output', endpointId: string, name: string) =>
      pieces.run({ kind, endpointId }, async () => {
        order.push(name);
        await new Promise(setImmediate);
      });
    return { pieces, order, run };
  }

  it('are written one at a time, the endpoints by turns', async () => {
    const { order, run } = createRecorder();
    const names = ['a1', 'a2', 'a3', 'a4', 'b1', 'c1', 'b2'];
    await Promise.all(names.map((name) => run('input', name.slice(0, 1), name)));
    expect(order).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
  });

  it('are written with outputs before inputs, but inputs as well', async () => {
    const { order, run } = createRecorder();
    const inputs = ['i1', 'i2', 'i3'].map((name) => run('input', 'a', name));
    const outputs = ['o1', 'o2', 'o3', 'o4', 'o5'].map((name) => run('output', 'b', name));
    await Promise.all([...inputs, ...outputs]);
    expect(order).toEqual(['i1', 'o1', 'o2', 'o3', 'i2', 'o4', 'o5', 'i3']);
  });

  it('get their turn before the payloads of others with lower rank', async () => {
    const { order, run } = createRecorder();
    const upload = async () => {
      for (const name of ['o1', 'o2', 'o3']) await run('output', 'a', name);
    };
    await Promise.all([run('input', 'b', 'i1'), run('input', 'b', 'i2'), upload()]);
    expect(order).toEqual(['i1', 'o1', 'o2', 'o3', 'i2']);
  });

  const failures: [string, () => Promise<never>][] = [
    ['rejects', () => Promise.reject(new Error('full'))],
    [
      'throws at once',
      () => {
        throw new Error('full');
      },
    ],
  ];

  it.each(failures)('are written also behind a write that %s', async (_how, fail) => {
    const { order, run, pieces } = createRecorder();
    const failed = pieces.run({ kind: 'input', endpointId: 'a' }, fail);
    const second = run('input', 'a', 'a2');
    await expect(failed).rejects.toThrow('full');
    await second;
    await run('output', 'a', 'a3');
    expect(order).toEqual(['a2', 'a3']);
  });
});
