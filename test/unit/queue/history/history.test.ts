// The history of jobs: each end has one line in one file, over failures of the target and ends of the platform at each step.
import { setImmediate } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  DEFAULT_HISTORY_SETTINGS,
  type HistorySettings,
  type HistoryTarget,
} from '../../../../src/queue/history/history-files.ts';
import { Schedules } from '../../../../src/queue/schedules/schedules.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  failed,
  Hand,
  Platform,
  type PlatformOptions,
} from '../../../support/queue-platform.ts';
import { until } from '../../../support/until.ts';

const HOUR = 3_600_000;

/** Keeps files in memory, and fails as often as a test asks. */
class MemoryTarget implements HistoryTarget {
  readonly files = new Map<string, Uint8Array>();
  attempts = 0;
  failures = 0;
  onPut = () => {};
  readonly #first = new Map<string, Uint8Array>();

  async put(name: string, content: Uint8Array): Promise<void> {
    this.attempts++;
    // An earlier attempt may still arrive after a later one.
    const first = this.#first.get(name) ?? content;
    if (Buffer.compare(first, content) !== 0) throw new Error('other lines than before');
    this.#first.set(name, content);
    this.onPut();
    if (this.failures > 0) {
      this.failures--;
      throw new Error('S3 answered 503');
    }
    this.files.set(name, content);
  }

  async close(): Promise<void> {}

  get lines(): Record<string, unknown>[] {
    return [...this.files.values()].flatMap((content) =>
      gunzipSync(content)
        .toString()
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line)),
    );
  }
}

let platform: Platform;
let hand: Hand;
let target: MemoryTarget;
afterEach(() => platform.close());

async function open(
  history: Partial<HistorySettings> = {},
  options: PlatformOptions = {},
): Promise<void> {
  target = new MemoryTarget();
  platform = new Platform({
    ...options,
    history: target,
    settings: { ...options.settings, history: { ...DEFAULT_HISTORY_SETTINGS, ...history } },
    endpoint: { maxAttempts: 1, history: 'FULL', ...options.endpoint },
  });
  await platform.start();
  await greet();
}

async function greet(): Promise<void> {
  hand = new Hand(() => platform.queue.link(ENDPOINT), { slots: 1 });
  await hand.hello();
}

async function complete(input: object = { n: 1 }, output = '{"sum":3}'): Promise<string> {
  const id = await platform.submit({}, Buffer.from(JSON.stringify(input)));
  await hand.finish(await hand.takeOne(), completed, { body: output });
  return id;
}

const counts = () => platform.queue.historyCounts().get(ENDPOINT);
const written = (lines: number) =>
  until(() => target.lines.length >= lines && counts()?.waiting === 0);

describe('the history of jobs', () => {
  it('writes the ends of an hour to one file, the first end first', async () => {
    await open();
    const id = await complete({ n: 1 });
    const other = await platform.submit();
    const error = { code: 'handler_error', message: 'no such model' } as const;
    await hand.finish(await hand.takeOne(), { ...failed, error, retry: 'never' });
    await platform.clock.advance(HOUR / 2);
    expect(target.files.size).toBe(0);
    await platform.clock.advance(HOUR / 2);
    await written(2);
    expect([...target.files.keys()]).toEqual([
      expect.stringMatching(
        /^endpoint=e\/date=\d{4}-\d\d-\d\d\/\d{8}T\d{6}Z-[0-9a-f-]{36}\.jsonl\.gz$/,
      ),
    ]);
    expect(target.lines).toMatchObject([
      {
        ...{ id, endpointId: ENDPOINT, userId: 'owner', status: 'COMPLETED' },
        ...{ input: { n: 1 }, output: { sum: 3 } },
        timeline: [{ event: 'submitted' }, { event: 'started' }, { event: 'ended' }],
      },
      { id: other, status: 'FAILED', error: { message: 'no such model' } },
    ]);
    expect(counts()).toEqual({ waiting: 0, written: 2, dropped: 0 });
  });

  it('begins another file when one is large', async () => {
    await open({ fileBytes: 2_000 });
    for (let n = 0; n < 8; n++) await complete({ n });
    await platform.clock.advance(HOUR);
    await written(8);
    expect(target.files.size).toBeGreaterThan(1);
    expect(target.lines.map(({ input }) => input)).toEqual(
      [0, 1, 2, 3, 4, 5, 6, 7].map((n) => ({ n })),
    );
  });

  it('leaves out inputs and outputs, or those that are large', async () => {
    await open({ payloadBytes: 100 });
    await complete({ text: 'x'.repeat(200) }, JSON.stringify('y'.repeat(300)));
    const id = await platform.submit();
    const lease = await hand.takeOne();
    await hand.report([chunksOf(lease, 1, 0, ['a', 'b'])]);
    await hand.finish(lease, { ...completed, output: 'chunks' }, { seq: 2 });
    await platform.clock.advance(HOUR);
    await written(2);
    const [large, streamed] = target.lines;
    expect(large).toMatchObject({ inputBytes: 211, outputBytes: 302 });
    expect(large).not.toHaveProperty('output');
    expect(streamed).toMatchObject({ id, output: ['a', 'b'] });
  });

  it.each(['RECORD', 'OFF'] as const)('keeps as much as the policy %s says', async (policy) => {
    await open({ policy: 'FULL' }, { endpoint: { history: policy } });
    await complete();
    await platform.clock.advance(2 * HOUR);
    if (policy === 'RECORD') await written(1);
    expect(target.lines.map((line) => [line['status'], line['input'], line['output']])).toEqual(
      policy === 'RECORD' ? [['COMPLETED', undefined, undefined]] : [],
    );
  });

  it('takes the policy of the platform if the endpoint has none', async () => {
    await open({ policy: 'RECORD' }, { endpoint: { history: null } });
    await complete();
    await platform.clock.advance(HOUR);
    await written(1);
  });

  it('has a line for each end of a job that runs again, and for a job that ends without a run', async () => {
    await open();
    const id = await platform.submit();
    await hand.finish(await hand.takeOne(), { ...failed, retry: 'never' });
    await platform.queue.jobs.retry({ endpointId: ENDPOINT, id });
    await hand.finish(await hand.takeOne(), completed, { body: '1' });
    const cancelled = await platform.submit();
    await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: cancelled });
    const expired = await platform.submit({ ttl: 60_000 });
    await platform.clock.advance(2 * HOUR);
    await written(4);
    expect(target.lines).toMatchObject([
      { id, status: 'FAILED' },
      { id, status: 'COMPLETED', run: 2, output: 1 },
      { id: cancelled, status: 'CANCELLED' },
      { id: expired, status: 'IN_QUEUE', removedAt: expect.any(Number) },
    ]);
    expect(new Set(target.lines.map(({ recordId }) => recordId)).size).toBe(4);
  });

  it('keeps lines beyond the retention of their jobs while no file can be written', async () => {
    await open();
    target.failures = 5;
    const id = await complete();
    for (let hours = 0; hours < 3; hours++) await platform.clock.advance(HOUR);
    await expect(platform.record(id)).rejects.toMatchObject({ code: 'not_found' });
    await written(1);
    expect(target.attempts).toBe(6);
  });

  it('writes the same lines again after a failure, even if more jobs have ended', async () => {
    await open({ everyMs: 60_000 });
    target.failures = 1;
    await complete({ n: 0 });
    await platform.clock.advance(60_000);
    await until(() => target.attempts === 1);
    await complete({ n: 1 });
    for (let minutes = 0; minutes < 3; minutes++) await platform.clock.advance(60_000);
    await written(2);
    expect(target.files.size).toBe(2);
  });

  it('drops and counts the lines of a user that are beyond the bound', async () => {
    await open({ backlogBytes: 2_500 });
    target.failures = 1_000;
    for (let n = 0; n < 6; n++) await complete({ n });
    const { dropped = 0, waiting = 0 } = counts() ?? {};
    expect(dropped).toBeGreaterThan(0);
    expect(dropped + waiting).toBe(6);
    target.failures = 0;
    await platform.clock.advance(2 * HOUR);
    await written(waiting);
    await greet();
    await complete({ n: 7 });
    expect(counts()).toMatchObject({ waiting: 1, dropped });
  });
});

describe('after an end of the platform', () => {
  /** A store that fails all writes from a certain one on, and holds back reads of lines. */
  function openStore() {
    const store = openSqliteStore({ path: ':memory:' });
    const faults = { writes: Number.POSITIVE_INFINITY, hold: Promise.resolve() };
    const isPage = (result: unknown) =>
      Array.isArray(result) && result.some(({ kind }) => kind === 'history');
    const faulty: Store = {
      files: store.files,
      reclaim: (pages) => store.reclaim(pages),
      close: () => store.close(),
      read: async (operation) => {
        const result = await store.read(operation);
        if (!isPage(result)) return result;
        await faults.hold;
        return await store.read(operation);
      },
      write: async (operation, options) => {
        if (faults.writes-- <= 0) throw new Error('killed');
        return await store.write(operation, options);
      },
    };
    return { faults, store: faulty };
  }

  // Neither the sweeper nor the worker's absence may write meanwhile.
  const everyMs = 60_000;

  it.each([
    ['before the file', undefined],
    ['after the file', 0],
    ['before the removal of lines', 1],
    ['during the removal of lines', 2],
  ])('has each line once, killed %s', async (_, writesAfter) => {
    const { faults, store } = openStore();
    await open({ everyMs }, { store });
    for (let n = 0; n < 70; n++) await complete({ n });
    if (writesAfter === undefined) faults.writes = 0;
    target.onPut = () => {
      faults.writes = writesAfter ?? 0;
    };
    await platform.clock.advance(everyMs);
    await until(() => faults.writes < 0);
    target.onPut = () => {};
    faults.writes = Number.POSITIVE_INFINITY;
    await platform.restart(1);
    await complete({ n: 70 });
    for (let minutes = 0; minutes < 3; minutes++) await platform.clock.advance(everyMs);
    await written(71);
    expect(target.lines.map(({ input }) => input)).toEqual(
      Array.from({ length: 71 }, (_, n) => ({ n })),
    );
  });

  it('counts the lines that wait, and those that come meanwhile, once', async () => {
    const { faults, store } = openStore();
    await open({}, { store });
    for (let n = 0; n < 70; n++) await complete({ n });
    const { promise, resolve: release } = Promise.withResolvers<void>();
    faults.hold = promise;
    await platform.restart(1);
    await complete({ n: 70 });
    release();
    await until(() => (counts()?.waiting ?? 0) >= 71);
    await platform.clock.advance(1_000);
    expect(counts()?.waiting).toBe(71);
  });

  it('counts once what ends while the platform starts', async () => {
    await open();
    await complete();
    const id = await platform.submit({ ttl: HOUR });
    const start = vi.spyOn(Schedules.prototype, 'start').mockImplementationOnce(async () => {
      const find = () => platform.store.read((tx) => tx.job({ endpointId: ENDPOINT, id }));
      while (await find()) await setImmediate();
    });
    await platform.restart(3 * HOUR);
    start.mockRestore();
    await platform.clock.advance(HOUR);
    await until(() => target.lines.length === 2);
    await platform.clock.advance(1_000);
    expect(counts()).toEqual({ waiting: 0, written: 2, dropped: 0 });
  });
});
