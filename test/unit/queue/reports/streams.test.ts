// Reading a job's chunks: the default cursor, positions, new attempts, and what waits for what.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Position, StreamPage } from '../../../../src/queue/reports/streams.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  failed,
  Hand,
  NEVER,
  Platform,
} from '../../../support/queue-platform.ts';

let platform: Platform;
let worker: Hand;
let id: string;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
  id = await platform.submit();
});

afterEach(() => platform.close());

interface ReadOptions {
  after?: Position;
  waitMs?: number;
  maxBytes?: number;
  wakeOnReset?: true;
}

function read({ after, ...options }: ReadOptions = {}): Promise<StreamPage> {
  const defaults = { waitMs: 0, maxBytes: 1_000_000, signal: NEVER };
  const request = { ...defaults, ...options, endpointId: ENDPOINT, id, after };
  return platform.queue.streams.read(request);
}

function handOut(page: StreamPage): Promise<void> {
  return platform.queue.streams.noteSent({ endpointId: ENDPOINT, id }, page.position);
}

function outputs({ chunks }: StreamPage): unknown[] {
  return chunks.map((chunk) => JSON.parse(Buffer.from(chunk).toString()).output);
}

describe('the default cursor', () => {
  it('returns chunks that were not handed out, then newer ones', async () => {
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['a', 'b']));
    expect(outputs(await read())).toEqual(['a', 'b']);
    const page = await read();
    expect(outputs(page)).toEqual(['a', 'b']);
    await handOut(page);
    await worker.reportOne(chunksOf(lease, 2, 2, ['c']));
    expect(outputs(await read())).toEqual(['c']);
  });

  it('continues within a batch', async () => {
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['a', 'b', 'c']));
    const page = await read({ maxBytes: 30 });
    expect(outputs(page)).toEqual(['a']);
    expect(page).toMatchObject({ position: { attempt: 1, n: 0 }, complete: false });
    await handOut(page);
    expect(outputs(await read())).toEqual(['b', 'c']);
  });

  it('never goes back', async () => {
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['a', 'b']));
    const early = await read({ maxBytes: 1 });
    await handOut(await read());
    await handOut(early);
    expect(outputs(await read())).toEqual([]);
  });

  it('survives a restart of the platform', async () => {
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['a', 'b']));
    await handOut(await read({ maxBytes: 1 }));
    await platform.restart();
    expect(outputs(await read())).toEqual(['b']);
  });

  it('restarts with the next attempt', async () => {
    const first = await worker.takeOne();
    await worker.reportOne(chunksOf(first, 1, 0, ['a', 'b']));
    const old = await read();
    await handOut(old);
    await worker.finish(first, { kind: 'released', reason: 'drain' }, { seq: 2 });
    await worker.reportOne(chunksOf(await worker.takeOne(), 1, 0, ['A']));
    await handOut(old);
    const page = await read();
    expect(outputs(page)).toEqual(['A']);
    expect(page).toMatchObject({ position: { attempt: 2, n: 0 }, reset: true });
    await handOut(page);
    await handOut(old);
    expect(outputs(await read())).toEqual([]);
  });

  it('waits for the first chunk of the next attempt, however many it returned of the previous one', async () => {
    const first = await worker.takeOne();
    await worker.reportOne(chunksOf(first, 1, 0, ['a']));
    await handOut(await read());
    await worker.finish(first, { kind: 'released', reason: 'drain' }, { seq: 2 });
    const second = await worker.takeOne();
    let isAnswered = false;
    const page = read({ waitMs: 10_000 }).finally(() => {
      isAnswered = true;
    });
    await platform.clock.advance(5_000);
    expect(isAnswered).toBe(false);
    await worker.reportOne(chunksOf(second, 1, 0, ['A']));
    expect(await page).toMatchObject({ reset: true, position: { attempt: 2, n: 0 } });
  });
});

describe('a position', () => {
  it('returns the chunks after it and moves no cursor', async () => {
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['a', 'b', 'c']));
    const page = await read({ after: { attempt: 1, n: 0 } });
    expect(outputs(page)).toEqual(['b', 'c']);
    expect(page.position).toEqual({ attempt: 1, n: 2 });
    expect(outputs(await read())).toEqual(['a', 'b', 'c']);
  });

  it('means the start at attempt 0, without a reset', async () => {
    await worker.reportOne(chunksOf(await worker.takeOne(), 1, 0, ['a']));
    const page = await read({ after: { attempt: 0, n: -1 } });
    expect(outputs(page)).toEqual(['a']);
    expect(page.reset).toBe(false);
  });

  it('waits at an older attempt for the first chunk of the newer one, unless the caller asks to wake on a reset', async () => {
    const first = await worker.takeOne();
    await worker.reportOne(chunksOf(first, 1, 0, ['a', 'b']));
    await worker.finish(first, { kind: 'released', reason: 'drain' }, { seq: 2 });
    const lease = await worker.takeOne();
    const after = { attempt: 1, n: 1 };
    const empty = await read({ after, waitMs: 10_000, wakeOnReset: true });
    expect(empty).toMatchObject({ chunks: [], reset: true, position: { attempt: 2, n: -1 } });
    const waiting = read({ after, waitMs: 10_000 });
    let isAnswered = false;
    void waiting.finally(() => {
      isAnswered = true;
    });
    await platform.clock.advance(5_000);
    expect(isAnswered).toBe(false);
    await worker.reportOne(chunksOf(lease, 1, 0, ['A']));
    for (const page of [await waiting, await read({ after })]) {
      expect(outputs(page)).toEqual(['A']);
      expect(page.reset).toBe(true);
    }
  });

  it('is refused for an attempt that has not begun', async () => {
    const reading = read({ after: { attempt: 1, n: 0 } });
    await expect(reading).rejects.toMatchObject({ code: 'invalid' });
  });

  it('returns nothing beyond the last chunk', async () => {
    await worker.reportOne(chunksOf(await worker.takeOne(), 1, 0, ['a']));
    const page = await read({ after: { attempt: 1, n: 7 } });
    expect(page).toMatchObject({ chunks: [], position: { attempt: 1, n: 7 }, complete: false });
  });
});

describe('a reader', () => {
  it('waits for the first chunk', async () => {
    const reading = read({ waitMs: 10_000 });
    await worker.reportOne(chunksOf(await worker.takeOne(), 1, 0, ['a']));
    expect(outputs(await reading)).toEqual(['a']);
  });

  it('returns nothing when its wait is over', async () => {
    const reading = read({ waitMs: 10_000 });
    await platform.clock.advance(10_000);
    expect(await reading).toMatchObject({ chunks: [], status: 'IN_QUEUE', complete: false });
  });

  it('returns at once when the job ends', async () => {
    const lease = await worker.takeOne();
    const reading = read({ waitMs: 10_000 });
    await worker.finish(lease, { ...failed, retry: 'never' });
    expect(await reading).toMatchObject({ chunks: [], status: 'FAILED', complete: true });
  });

  it('ends with not_found when the job is removed', async () => {
    await platform.queue.jobs.setTtl({ endpointId: ENDPOINT, id }, 10_000);
    const ended = expect(read({ waitMs: 60_000 })).rejects.toMatchObject({ code: 'not_found' });
    await platform.clock.advance(10_000);
    await ended;
  });

  it('returns when the queue closes', async () => {
    const reading = read({ waitMs: 60_000 });
    await platform.queue.close();
    expect(await reading).toMatchObject({ chunks: [], complete: false });
  });

  it('learns when its chunks are the last ones', async () => {
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['a', 'b']));
    expect((await read()).complete).toBe(false);
    await worker.finish(lease, { ...completed, output: 'chunks' }, { seq: 2 });
    expect(await read({ maxBytes: 1 })).toMatchObject({ complete: false, status: 'COMPLETED' });
    expect(await read()).toMatchObject({ complete: true, status: 'COMPLETED' });
  });

  it('gets one chunk even if that is larger than requested', async () => {
    await worker.reportOne(chunksOf(await worker.takeOne(), 1, 0, ['x'.repeat(500)]));
    expect((await read({ maxBytes: 10 })).chunks).toHaveLength(1);
  });
});

describe('a job that does not stream', () => {
  it('returns its output as one chunk, once', async () => {
    await worker.finish(await worker.takeOne(), completed, { body: '{"a":"ä"}' });
    const page = await read();
    expect(page.chunks.map((chunk) => JSON.parse(Buffer.from(chunk).toString()))).toEqual([
      { output: { a: 'ä' }, metrics: {} },
    ]);
    expect(page).toMatchObject({ position: { attempt: 1, n: 0 }, complete: true });
    await handOut(page);
    expect(await read()).toMatchObject({ chunks: [], complete: true });
  });

  it('returns a large output in pieces, one by one', async () => {
    const text = 'x'.repeat(2_500_000);
    await worker.finish(await worker.takeOne(), completed, { body: JSON.stringify(text) });
    const pieces: string[] = [];
    for (let page = await read({ maxBytes: 1 }); page.chunks.length > 0; ) {
      pieces.push(...outputs(page).map(String));
      page = await read({ after: page.position, maxBytes: 1 });
    }
    expect(pieces).toHaveLength(3);
    expect(pieces.join('')).toBe(text);
  });
});

describe('a large output that is read page by page', () => {
  const readFirst = async () =>
    (await read({ after: { attempt: 1, n: -1 }, maxBytes: 1 })).chunks[0];

  beforeEach(async () => {
    const body = JSON.stringify({ text: 'x'.repeat(2_500_000) });
    await worker.finish(await worker.takeOne(), completed, { body });
  });

  it('is split once, and again after a time without reads', async () => {
    const first = await readFirst();
    await platform.clock.advance(9_000);
    expect(await readFirst()).toBe(first);
    await platform.clock.advance(9_000);
    expect(await readFirst()).toBe(first);
    await platform.clock.advance(10_000);
    const later = await readFirst();
    expect(later).not.toBe(first);
    expect(later).toEqual(first);
  });

  it('is split with pauses, in which others are served', async () => {
    const reading = read({ after: { attempt: 0, n: -1 } });
    let turns = 0;
    let isOver = false;
    const countIterations = () => {
      turns += 1;
      if (!isOver) setImmediate(countIterations);
    };
    setImmediate(countIterations);
    const page = await reading;
    isOver = true;
    expect(page.more).toBe(true);
    expect(turns).toBeGreaterThanOrEqual(3);
  });

  it('is not kept when other outputs are read meanwhile', async () => {
    const first = await readFirst();
    for (let others = 0; others < 4; others++) {
      const other = await platform.submit();
      const lease = await worker.takeOne();
      await worker.finish(lease, completed, { body: JSON.stringify('y'.repeat(1_500_000)) });
      const request = { endpointId: ENDPOINT, id: other, after: undefined, waitMs: 0 };
      await platform.queue.streams.read({ ...request, maxBytes: 1, signal: NEVER });
    }
    expect(await readFirst()).not.toBe(first);
  });
});

describe('a requested retry', () => {
  it('drops the earlier chunks', async () => {
    const lease = await worker.takeOne();
    await worker.reportOne(chunksOf(lease, 1, 0, ['a']));
    await worker.finish(lease, { ...failed, retry: 'never' }, { seq: 2 });
    await platform.queue.jobs.retry({ endpointId: ENDPOINT, id });
    expect(await read({ after: { attempt: 0, n: -1 } })).toMatchObject({
      chunks: [],
      complete: false,
    });
  });
});
