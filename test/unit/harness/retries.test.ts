// Retry policies of the endpoint, the handler and the job, through worker and platform, in the harness's time.
import { afterEach, expect, it } from 'vitest';
import { RetryAfterError, type RetryPolicy } from '../../../src/index.ts';
import {
  createHarness,
  type Harness,
  type HarnessOptions,
  runHandler,
} from '../../../src/testing.ts';
import type { JobRecord } from '../../../src/wire/job/job-records.ts';

let harness: Harness | undefined;
afterEach(async () => {
  await harness?.close();
  harness = undefined;
});

const MINUTES = 2;

interface Story {
  ofEndpoint?: NonNullable<HarnessOptions['retry']>;
  ofHandler?: RetryPolicy;
  ofJob?: RetryPolicy;
  thrown?: Error;
  /** Calls this each second. */
  each?: (second: number, made: Harness) => Promise<void>;
}

/** Runs a job that always fails. @returns the seconds in which its attempts began, and its last record */
async function play({ each, ofEndpoint, ofHandler, ofJob, thrown = new Error('no') }: Story) {
  const starts: number[] = [];
  let second = 0;
  const handler = {
    run: () => {
      starts.push(second);
      throw thrown;
    },
    config: { ...(ofHandler && { retry: ofHandler }) },
  };
  const made = await createHarness({
    ...{ handler, clock: 'manual', queue: { retry: { jitter: 0 } } },
    ...(ofEndpoint && { retry: ofEndpoint }),
  });
  harness = made;
  let record: JobRecord | undefined;
  const job = await made.submit({}, { ttl: 60_000, ...(ofJob && { retry: ofJob }) });
  await made.advance(0);
  for (second = 1; second <= MINUTES * 60; second += 1) {
    await each?.(second, made);
    await made.advance(1_000);
    // Its time to live removes the job in the end.
    record = await job.record().catch(() => record);
  }
  return { starts, record };
}

it.each([
  ['no policy', {}, [0, 1, 3]],
  ['the endpoint', { ofEndpoint: { backoff: 'fixed', delayMs: 10_000 } }, [0, 10, 20]],
  [
    'the handler',
    { ofEndpoint: { delayMs: 9_000 }, ofHandler: { delayMs: 4_000, maxAttempts: 2 } },
    [0, 4],
  ],
  ['the job', { ofHandler: { delayMs: 4_000 }, ofJob: { delayMs: 2_000, factor: 3 } }, [0, 2, 8]],
  ['a list', { ofJob: { backoff: 'list', delaysMs: [3_000, 9_000] } }, [0, 3, 12]],
  ['an error code', { ofJob: { noRetryOn: ['handler_error'] } }, [0]],
  ['a time', { ofJob: { maxElapsedMs: 2_000 } }, [0, 1]],
] satisfies [string, Story, number[]][])('follow %s', async (_, story, starts) => {
  expect(await play(story)).toMatchObject({ starts, record: { status: 'FAILED' } });
});

it('hold after a restart of the platform, whose workers say hello only once', async () => {
  const each: Story['each'] = async (second, made) => {
    if (second === 2) await made.restartPlatform();
  };
  const story = { each, ofHandler: { backoff: 'fixed', delayMs: 4_000 } } as const;
  expect((await play(story)).starts).toEqual([0, 4, 8]);
});

it('postpone a job without a failure until its time to live is over', async () => {
  const thrown = new RetryAfterError(7_000, 'busy', { counts: false });
  const { record, starts } = await play({ thrown, ofHandler: { maxAttempts: 1 } });
  expect(starts).toEqual([0, 7, 14, 21, 28, 35, 42, 49, 56]);
  expect(record).toMatchObject({ status: 'FAILED', attempt: 9, error: { message: 'busy' } });
  expect(record?.error?.attempts).toHaveLength(1);
});

it('decide in runHandler too', async () => {
  const fail = (retry?: RetryPolicy) => ({
    run: () => Promise.reject(new Error('no')),
    config: { ...(retry && { retry }) },
  });
  const attemptsOf = async (retry?: RetryPolicy) =>
    (await runHandler(fail(retry), {}, { attempts: 5 })).attempts;
  expect(await attemptsOf()).toBe(5);
  expect(await attemptsOf({ maxAttempts: 2 })).toBe(2);
  expect(await attemptsOf({ retryOn: ['worker_crashed'] })).toBe(1);
});
