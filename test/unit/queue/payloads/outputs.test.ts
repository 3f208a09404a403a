// Outputs of attempts: bounded with the job, and readable while they are fresh.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { FreshOutputs } from '../../../../src/queue/payloads/outputs.ts';
import { jobRecord } from '../../../../src/wire/job/job-records.ts';
import {
  completed,
  ENDPOINT,
  failed,
  Hand,
  outcomeOf,
  Platform,
  progressOf,
} from '../../../support/queue-platform.ts';

describe('the bounds of an outcome', () => {
  const ENDLESS = 'x'.repeat(1_000_000);

  let platform: Platform;
  let worker: Hand;

  beforeEach(async () => {
    platform = new Platform({ endpoint: { maxAttempts: 100 } });
    await platform.start();
    worker = new Hand(() => platform.queue.link(ENDPOINT));
    await worker.hello();
  });

  afterEach(() => platform.close());

  it('cut the texts of an error', async () => {
    const id = await platform.submit();
    const stuck = { state: 'running', stack: ENDLESS, chunks: 0 } as const;
    const error = { ...failed.error, message: ENDLESS, type: ENDLESS, stack: ENDLESS, stuck };
    await worker.finish(await worker.takeOne(), { ...failed, error, retry: 'never' });
    const { error: kept } = await platform.record(id);
    const texts = [kept?.message, kept?.type, kept?.stack, kept?.stuck?.stack];
    const ends = texts.map((text) => text?.replace(/^x{33000}/, ''));
    expect(ends).toEqual(Array(4).fill('… (967000 more characters)'));
    const inHistory = kept?.attempts[0]?.message.replace(/^x{1000}/, '');
    expect(inHistory).toBe('… (32026 more characters)');
  });

  it('keep the history of a job that failed a hundred times small', async () => {
    const id = await platform.submit();
    const error = { ...failed.error, message: ENDLESS };
    for (let attempt = 1; attempt <= 100; attempt++) {
      const end = { ...failed, error, retry: 'after', retryAfterMs: 0 } as const;
      await worker.finish(await worker.takeOne(), end);
    }
    const { history, status } = await platform.job(id);
    expect({ status, attempts: history.length }).toEqual({ status: 'FAILED', attempts: 100 });
    expect(JSON.stringify(history).length).toBeLessThan(200_000);
  });

  it('limit and round the figures of an attempt', async () => {
    const id = await platform.submit();
    const gpu = {
      ...({
        seconds: 1e300,
        vramPeakBytes: 1e300,
        vramMeanBytes: 0.6,
        vramScope: 'process',
      } as const),
      ...{ utilizationMean: 99.5, energyJoules: 1.23456, shared: false },
    };
    const report = outcomeOf(await worker.takeOne(), 1, completed, '1');
    await worker.reportOne({ ...report, usage: { gpu } });
    const { usage } = await platform.record(id);
    const { usage: described } = jobRecord.shape;
    expect(described.parse(usage)).toEqual(usage);
    expect(described.safeParse({ gpu }).error?.issues).toHaveLength(3);
    expect(usage).toEqual({
      gpu: {
        ...{
          seconds: 365 * 86_400_000,
          vramPeakBytes: 2 ** 50,
          vramMeanBytes: 1,
          vramScope: 'process',
        },
        ...{ utilizationMean: 1, energyJoules: 1.235, shared: false },
      },
    });
  });

  it('limit and round the figures of a stuck attempt', async () => {
    const id = await platform.submit();
    const odd = { lastChunkMs: 1e300, eventLoopUtilization: 1.5, heapUsedBytes: 0.6 };
    const stuck = { state: 'running', chunks: 0, ...odd } as const;
    const error = { ...failed.error, stuck };
    await worker.finish(await worker.takeOne(), { ...failed, error, retry: 'never' });
    const record = await platform.record(id);
    expect(record.error?.stuck).toEqual({
      ...stuck,
      ...{ lastChunkMs: 365 * 86_400_000, eventLoopUtilization: 1, heapUsedBytes: 1 },
    });
    expect(jobRecord.parse(record)).toEqual(record);
    const { error: described } = jobRecord.shape;
    expect(described.safeParse({ ...error, attempts: [] }).error?.issues).toHaveLength(3);
  });

  describe('spans', () => {
    it('last at most a year for an attempt', async () => {
      const id = await platform.submit();
      await worker.finish(await worker.takeOne(), { ...completed, executionMs: 1e300 });
      expect(await platform.record(id)).toMatchObject({
        ...{ status: 'COMPLETED', executionTime: 365 * 86_400_000 },
      });
    });

    it('last at most a year before the next attempt', async () => {
      const id = await platform.submit();
      const end = { ...failed, retry: 'after', retryAfterMs: 1e300 } as const;
      await worker.finish(await worker.takeOne(), end);
      const { availableAt, delayed } = await platform.job(id);
      expect(delayed).toBe(true);
      expect(availableAt).toBe(platform.clock.now() + 365 * 86_400_000);
    });
  });

  it('refuse progress of more than 64 KB', async () => {
    await platform.submit();
    const lease = await worker.takeOne();
    const tooLarge = worker.report([progressOf(lease, 1, 'x'.repeat(65_535))]);
    await expect(tooLarge).rejects.toMatchObject({ name: 'LinkError', code: 'invalid' });
    const fits = await worker.report([progressOf(lease, 1, 'x'.repeat(65_534))]);
    expect(fits).toEqual([{ answer: 'applied' }]);
  });
});

describe('fresh outputs', () => {
  const KEY = { endpointId: 'e', id: 'j', attempt: 2 };
  const BYTES = Buffer.from('{}');

  describe('an offered output', () => {
    it('is taken once, and only as that of its attempt', () => {
      const outputs = new FreshOutputs(new ManualClock());
      outputs.offer(KEY, BYTES);
      expect(outputs.take({ ...KEY, attempt: 1 })).toBeUndefined();
      expect(outputs.take(KEY)).toBe(BYTES);
      expect(outputs.take(KEY)).toBeUndefined();
    });

    it('ends at once when it has been taken, or was not stored', async () => {
      const outputs = new FreshOutputs(new ManualClock());
      const taken = outputs.offer(KEY, BYTES);
      outputs.take(KEY);
      await taken.end(true);
      const refused = outputs.offer(KEY, BYTES);
      await refused.end(false);
      expect(outputs.take(KEY)).toBeUndefined();
    });

    it('ends after a moment if nobody takes it', async () => {
      const clock = new ManualClock();
      const outputs = new FreshOutputs(clock);
      let hasEnded = false;
      const ended = outputs
        .offer(KEY, BYTES)
        .end(true)
        .then(() => {
          hasEnded = true;
        });
      await nextTurn();
      expect(hasEnded).toBe(false);
      await clock.advance(50);
      await ended;
      expect(outputs.take(KEY)).toBeUndefined();
    });
  });

  describe('a small output that is kept', () => {
    it('is a copy, and is taken once', () => {
      const outputs = new FreshOutputs(new ManualClock());
      const given = Buffer.from('"a"');
      outputs.keep(KEY, given);
      given.fill(0);
      expect(outputs.smallBytes(KEY)).toBe(3);
      expect(outputs.takeSmall({ ...KEY, endpointId: 'other' })).toBeUndefined();
      expect(Buffer.from(outputs.takeSmall(KEY) ?? []).toString()).toBe('"a"');
      expect(outputs.takeSmall(KEY)).toBeUndefined();
      expect(outputs.smallBytes(KEY)).toBeUndefined();
    });

    it.each([
      ['a large one', (outputs: FreshOutputs) => outputs.keep(KEY, Buffer.alloc(4_097))],
      ['an outcome without one', (outputs: FreshOutputs) => outputs.drop(KEY)],
    ])('is not taken for that of a later outcome: %s', (_name, note) => {
      const outputs = new FreshOutputs(new ManualClock());
      outputs.keep(KEY, BYTES);
      note(outputs);
      expect(outputs.takeSmall(KEY)).toBeUndefined();
    });

    it('drops the oldest one for a new one', () => {
      const outputs = new FreshOutputs(new ManualClock());
      for (let id = 0; id <= 1_024; id++) outputs.keep({ endpointId: 'e', id: `${id}` }, BYTES);
      expect(outputs.smallBytes({ endpointId: 'e', id: '0' })).toBeUndefined();
      expect(outputs.smallBytes({ endpointId: 'e', id: '1' })).toBe(2);
      expect(outputs.smallBytes({ endpointId: 'e', id: '1024' })).toBe(2);
    });
  });
});
