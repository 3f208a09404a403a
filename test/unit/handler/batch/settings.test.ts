// What a batch handler may say about its batches, and the errors of one that says something else.
import { describe, expect, it } from 'vitest';
import { defineBatchHandler } from '../../../../src/handler/define.ts';
import { readHandler } from '../../../../src/handler/loading/load.ts';

const run = () => [];
const load = (batch: unknown, members: object = {}) =>
  readHandler({ default: { run, batch, ...members } }, 'handler.ts');

describe('the batch member of a handler', () => {
  it('has defaults beside maxSize and maxWaitMs, and is part of the config', () => {
    const batch = { maxSize: 8, maxWaitMs: 5 };
    const handler = readHandler(defineBatchHandler({ batch, run: (jobs) => [...jobs] }), 'h');
    const settings = { ...batch, maxInFlight: 1 };
    expect(handler.config).toEqual({ batch: settings });
    expect(handler.batch?.settings).toEqual(settings);
  });

  it('is no part of a handler whose module exports something of that name', () => {
    const handler = readHandler({ default: async () => 1, batch: () => 2 }, 'handler.ts');
    expect(handler.batch).toBeUndefined();
  });

  it.each([
    [7, "handler.ts: 'batch' must be an object such as { maxSize: 8, maxWaitMs: 10 }"],
    [{}, 'batch.maxSize must be a whole number of jobs from 1 to 1024, got nothing'],
    [
      { maxSize: 0, maxWaitMs: 1 },
      'batch.maxSize must be a whole number of jobs from 1 to 1024, got 0',
    ],
    [{ maxSize: 1_025, maxWaitMs: 1 }, 'from 1 to 1024, got 1025'],
    [{ maxSize: 2.5, maxWaitMs: 1 }, 'from 1 to 1024, got 2.5'],
    [{ maxSize: '8', maxWaitMs: 1 }, 'from 1 to 1024, got string'],
    [
      { maxSize: 8 },
      'batch.maxWaitMs must be a whole number of milliseconds from 0 to 10000, got nothing',
    ],
    [{ maxSize: 8, maxWaitMs: 10_001 }, 'from 0 to 10000, got 10001'],
    [
      { maxSize: 8, maxWaitMs: 1, maxInFlight: 17 },
      'batch.maxInFlight must be a whole number of batches from 1 to 16, got 17',
    ],
    [{ maxSize: 8, maxWaitMs: 1, key: 'model' }, 'batch.key must be a function, got a string'],
    [
      { maxSize: 8, maxWaitMs: 1, size: 4 },
      "unknown members of 'batch': size; use maxSize, maxWaitMs, maxInFlight, key",
    ],
  ])('%j: %s', (batch, message) => {
    expect(() => load(batch)).toThrow(message);
  });

  it.each([
    [
      { concurrency: 4 },
      'config.concurrency does not apply to a batch handler; set batch.maxInFlight',
    ],
    [{ isolation: 'job' }, "config.isolation 'job' gives each job its own thread"],
  ])('refuses %j', (config, message) => {
    expect(() => load({ maxSize: 8, maxWaitMs: 1 }, { config })).toThrow(message);
  });
});
