// `runAll` and `wait` of the client, against a real platform over HTTP and a real worker in this process.
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import {
  type Client,
  createClient,
  JobFailedError,
  type RunAllProgress,
} from '../../../../src/client.ts';
import { readHandler } from '../../../../src/handler/loading/load.ts';
import { NonRetryableError } from '../../../../src/index.ts';
import { InlineExecutor } from '../../../../src/worker/execution/inline-executor.ts';
import { createWorker } from '../../../../src/worker/worker.ts';
import { ENDPOINT, type Platform, startPlatform } from '../../../support/api/platform.ts';

const CPU = { kind: 'cpu', index: 0, uuid: 'cpu', name: 'test', memoryBytes: 0 } as const;

interface Input {
  n?: number;
  fail?: true;
  /** Runs until it is stopped. */
  hang?: true;
}

interface Setup {
  platform: Platform;
  client: Client;
  /** Jobs that run now, and the most that ran at a time. */
  running: () => number;
  most: () => number;
}

async function start(): Promise<Setup> {
  const platform = await startPlatform();
  let running = 0;
  let most = 0;
  const handler = async ({ input }: { input: Input }, { signal }: { signal: AbortSignal }) => {
    most = Math.max(most, ++running);
    try {
      if (input.fail) throw new NonRetryableError('as asked');
      // Later inputs end earlier.
      await sleep(input.hang ? 600_000 : 60 - 10 * ((input.n ?? 0) % 6), undefined, { signal });
      return { twice: 2 * (input.n ?? 0) };
    } finally {
      running--;
    }
  };
  const executor = new InlineExecutor({
    ...{ handler: readHandler(handler, 'handler'), devices: [CPU], clock: systemClock, slots: 50 },
  });
  const named = { workerId: 'w', incarnation: 1, version: 'test', devices: [CPU] };
  const worker = createWorker({ ...named, link: platform.link, executor });
  onTestFinished(async () => {
    await worker.stop();
  });
  await worker.start();
  const client = createClient({ url: platform.url, key: platform.admin, endpoint: ENDPOINT });
  return { platform, client, running: () => running, most: () => most };
}

describe('wait', () => {
  it('returns the record when the job has ended, with any status', async () => {
    const { client } = await start();
    const { id } = await client.run({ n: 4 });
    expect(await client.wait(id)).toMatchObject({ status: 'COMPLETED', output: { twice: 8 } });
    const failing = await client.run({ fail: true });
    expect(await client.wait(failing.id)).toMatchObject({ status: 'FAILED' });
  });

  it('asks again when a request ends before the job', async () => {
    const { client, platform, running } = await start();
    const { id } = await client.run({ hang: true });
    await vi.waitFor(() => expect(running()).toBe(1));
    const untilEnd = platform.queue.jobs.untilEnd.bind(platform.queue.jobs);
    const asked = vi
      .spyOn(platform.queue.jobs, 'untilEnd')
      .mockImplementationOnce(async () => {})
      .mockImplementation(untilEnd);
    const waiting = client.wait(id);
    await vi.waitFor(() => expect(asked).toHaveBeenCalledTimes(2));
    await client.cancel(id);
    expect(await waiting).toMatchObject({ status: 'CANCELLED' });
  });

  it('ends with its signal', async () => {
    const { client } = await start();
    const { id } = await client.run({ hang: true });
    const abort = new AbortController();
    const waiting = client.wait(id, { signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(waiting).rejects.toThrow('enough');
    await client.cancel(id);
  });

  it('rejects for an unknown job', async () => {
    const { client } = await start();
    await expect(client.wait('nothing')).rejects.toMatchObject({ status: 404 });
  });
});

describe('runAll', () => {
  it('returns results in the order of the inputs, and rejects only those that fail', async () => {
    const { client, most } = await start();
    const inputs: Input[] = Array.from({ length: 20 }, (_, n) => ({ n }));
    inputs[7] = { fail: true };
    const results = await client.runAll(inputs, { concurrency: 5 });
    expect(results).toHaveLength(20);
    for (const [n, result] of results.entries()) {
      if (result.status === 'fulfilled') expect(result.value.output).toEqual({ twice: 2 * n });
      else expect([n, result.reason]).toEqual([7, expect.any(JobFailedError)]);
    }
    expect(most()).toBeLessThanOrEqual(5);
  });

  it('reports each end', async () => {
    const { client } = await start();
    const seen: RunAllProgress[] = [];
    const inputs = [{ n: 0 }, { fail: true }, { n: 2 }];
    const onProgress = (progress: RunAllProgress) => void seen.push(progress);
    const results = await client.runAll(inputs, { onProgress });
    expect(seen.map(({ done, total }) => [done, total])).toEqual([1, 2, 3].map((n) => [n, 3]));
    expect(seen.at(-1)?.failed).toBe(1);
    for (const { index, result } of seen) expect(result).toBe(results[index]);
  });

  it('reads an iterator no further than it has jobs to start', async () => {
    const { client, running } = await start();
    let read = 0;
    const abort = new AbortController();
    async function* generate() {
      for (; ; read++) yield { hang: true };
    }
    const all = client.runAll(generate(), { concurrency: 3, signal: abort.signal });
    await vi.waitFor(() => expect(running()).toBe(3));
    expect(read).toBeLessThanOrEqual(3);
    abort.abort();
    await expect(all).rejects.toThrow('aborted');
  });

  it('cancels its jobs when its signal aborts, and rejects with the reason', async () => {
    const { client, platform } = await start();
    const awaited = vi.spyOn(platform.queue.jobs, 'untilEnd');
    const abort = new AbortController();
    const inputs = Array.from({ length: 10 }, () => ({ hang: true }));
    const all = client.runAll(inputs, { concurrency: 4, signal: abort.signal });
    // Then the client knows the IDs of its jobs.
    await expect.poll(() => awaited.mock.calls.length).toBe(4);
    abort.abort(new Error('enough'));
    await expect(all).rejects.toThrow('enough');
    const { jobs } = await client.jobs();
    expect(jobs.map(({ status }) => status)).toEqual(Array(4).fill('CANCELLED'));
  });

  it('rejects at once if its source waits for ever', async () => {
    const { client } = await start();
    const abort = new AbortController();
    async function* wait() {
      await new Promise(() => {});
      yield {};
    }
    const all = client.runAll(wait(), { signal: abort.signal });
    abort.abort(new Error('enough'));
    await expect(all).rejects.toThrow('enough');
  });

  it('rejects with what its source or onProgress throws, and starts no further job', async () => {
    const { client } = await start();
    function* broken() {
      yield { n: 1 };
      throw new Error('no more lines');
    }
    await expect(client.runAll(broken())).rejects.toThrow('no more lines');
    const onProgress = () => {
      throw new Error('no terminal');
    };
    const inputs = Array.from({ length: 9 }, () => ({}));
    const before = (await client.jobs()).jobs.length;
    const all = client.runAll(inputs, { concurrency: 1, onProgress });
    await expect(all).rejects.toThrow('no terminal');
    expect((await client.jobs()).jobs.length).toBe(before + 1);
  });

  it('starts one job for an input although the answer to its submission was lost', async () => {
    const { platform } = await start();
    let lost = 0;
    const client = createClient({
      ...{ url: platform.url, key: platform.admin, endpoint: ENDPOINT },
      fetch: async (...call) => {
        const answer = await fetch(...call);
        if (lost++ > 0 || !String(call[0]).endsWith('/run')) return answer;
        throw new TypeError('the connection was reset');
      },
    });
    const results = await client.runAll([{ n: 1 }]);
    expect(results).toMatchObject([{ status: 'fulfilled', value: { output: { twice: 2 } } }]);
    expect((await client.jobs()).jobs).toHaveLength(1);
  });

  it('returns an empty list for no input', async () => {
    const { client } = await start();
    expect(await client.runAll([])).toEqual([]);
  });

  it.each([0, 1.5, 1_001, Number.NaN])('refuses a concurrency of %s', async (concurrency) => {
    const { client } = await start();
    await expect(client.runAll([{}], { concurrency })).rejects.toThrow(RangeError);
  });
});
