// Chunks of RunPod's workers that the platform does not take: such a worker drops them and goes on, so that
// the job must not end COMPLETED without them.
import { once } from 'node:events';
import { request } from 'node:http';
import { describe, expect, it } from 'vitest';
import {
  DEFAULT_WORKER_LIMITS,
  WorkerAllowance,
} from '../../../../src/api/worker/worker-allowance.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { LinkError, type WorkerLink } from '../../../../src/wire/link/worker-link.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import {
  ENDPOINT,
  type Platform,
  startPlatform,
  submitJob,
} from '../../../support/api/platform.ts';
import { ask, readRecord, send, take } from '../../../support/api/python-calls.ts';

/** A platform whose queue refuses the next chunks with these errors, and a job that streams. */
async function start() {
  const platform = await startPlatform();
  const errors: Error[] = [];
  const linkOf = platform.queue.link.bind(platform.queue);
  platform.queue.link = (endpointId) => {
    const link = linkOf(endpointId);
    const report: WorkerLink['report'] = (asked) => {
      const error = asked.reports[0]?.kind === 'chunks' ? errors.shift() : undefined;
      return error ? Promise.reject(error) : link.report(asked);
    };
    return { ...link, report };
  };
  const id = await submitJob(platform);
  const { id: name } = await take(platform);
  return { platform, errors, id, name: String(name) };
}

const path = (verb: string, name: string, isStream: boolean, worker = 'pod-1') =>
  `${verb}/${worker}/${name}?&isStream=${isStream}`;
const post = async (platform: Platform, name: string, output: unknown, worker?: string) => {
  const url = path('job-stream', name, false, worker);
  return (await send(platform, url, JSON.stringify({ output }))).status;
};
const finish = (platform: Platform, name: string) =>
  send(platform, path('job-done', name, true), '{"output": []}');

const failure = () => new Error('the disk is gone');

describe('a stream with a chunk that the platform did not receive', () => {
  it('is complete if the worker sends the chunk again', async () => {
    const { errors, id, name, platform } = await start();
    errors.push(failure(), failure());
    const statuses = [1, 1, 1, 2].map((output) => () => post(platform, name, output));
    const answers = [];
    for (const next of statuses) answers.push(await next());
    await finish(platform, name);

    expect(answers).toEqual([500, 500, 200, 200]);
    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', output: [1, 2] });
  });

  it.each([
    ['continues with the next chunk', [failure()], [1, 2]],
    ['ends right after it', [failure()], [1]],
    ['gives up the chunk after three attempts', [failure(), failure(), failure()], [1, 1, 1, 1]],
    ['learns that the chunk is invalid', [new LinkError('invalid', 'no')], [1, 1]],
  ])('restarts if the worker %s', async (_how, refusals, outputs) => {
    const { errors, id, name, platform } = await start();
    errors.push(...refusals);
    for (const output of outputs) await post(platform, name, output);
    await finish(platform, name);

    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_QUEUE' });
    const retry = await take(platform, '?&job_in_progress=1');
    expect(retry).toMatchObject({ id: `${id}-a2` });
  });

  it('fails instead if a client has received chunks', async () => {
    const { errors, id, name, platform } = await start();
    await post(platform, name, 1);
    const stream = await platform.call(`/v2/${ENDPOINT}/stream/${id}`);
    expect(await stream.json()).toHaveLength(1);
    errors.push(failure());
    await post(platform, name, 2);
    await finish(platform, name);

    expect(await readRecord(platform, id)).toMatchObject({
      ...{ status: 'FAILED', error: { code: 'output_incomplete' } },
    });
  });

  it('restarts if the connection breaks within a chunk', async () => {
    const { id, name, platform } = await start();
    const url = `${platform.url}/runpod/v2/demo/${path('job-stream', name, false)}`;
    const headers = { authorization: platform.worker, 'content-length': 1_000 };
    const broken = request(url, { method: 'POST', headers }).on('error', () => {});
    const isClosed = new Promise((resolve) => broken.once('close', resolve));
    broken.write('{"output": 1');
    await once(broken, 'socket');
    // The platform has begun to read it when it has answered what came behind.
    await post(platform, name, 2);
    broken.destroy();
    await isClosed;
    await post(platform, name, 3);
    await finish(platform, name);

    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_QUEUE' });
  });

  it('is not changed by a caller without the key', async () => {
    const { id, name, platform } = await start();
    await post(platform, name, 1);
    const url = `${platform.url}/runpod/v2/demo/${path('job-stream', name, false)}`;
    const stranger = await fetch(url, { method: 'POST', body: '{"output": 2}' });
    await finish(platform, name);

    expect(stranger.status).toBe(401);
    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', output: [1] });
  });
});

it('records before the queue closes whose next chunk is repeated', async () => {
  const clock = new ManualClock();
  const platform = await startPlatform({ clock });
  const names: string[] = [];
  for (const worker of ['pod-1', 'pod-2']) {
    await submitJob(platform);
    const name = String((await take(platform, undefined, worker))['id']);
    await post(platform, name, 0, worker);
    names.push(name);
  }
  const [parked = '', silent = ''] = names;
  const noted: { tokens: readonly string[]; isClosing: boolean }[] = [];
  platform.queue.bridge = (tokens) => {
    noted.push({ tokens, isClosing: platform.queue.isClosing });
  };
  const lease = await platform.queue.openLeases.ofJob({ endpointId: ENDPOINT, id: parked });

  const closed = platform.close();
  const answer = post(platform, parked, 1);
  while (noted.length === 0) await clock.advance(100);

  expect(await answer).toBe(503);
  expect(noted).toEqual([{ tokens: [lease?.token], isClosing: false }]);
  expect(platform.logged()).toMatch(
    /"attempts":1,"msg":"stopping while RunPod workers may lose chunks"/,
  );
  expect(silent).not.toBe('');
  await clock.advance(10_000);
  await closed;
});

it('makes a chunk or result beyond the rate limit wait, because a refusal would lose it', async () => {
  let refusals = 0;
  class Strict extends WorkerAllowance {
    override async countCall(): Promise<void> {
      if (refusals-- > 0) throw new ProblemError('rate_limited', 'no', { retryAfterMs: 5 });
    }
  }
  const limits = { limits: DEFAULT_WORKER_LIMITS, isPresent: () => true };
  const platform = await startPlatform({ server: { workerAllowance: new Strict(limits) } });
  const id = await submitJob(platform);
  const name = String((await take(platform))['id']);

  refusals = 3;
  expect(await post(platform, name, 1)).toBe(200);
  refusals = 3;
  expect((await finish(platform, name)).status).toBe(200);
  expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED', output: [1] });
});

describe('a result with all values of a stream that lacks some', () => {
  const readLog = async (platform: Platform, id: string) =>
    (await platform.call(`/v2/demo/logs/${id}`)).text();

  it('completes the job, and its log says how many are missing', async () => {
    const { id, name, platform } = await start();
    await post(platform, name, 1);
    await post(platform, name, 3);
    await send(platform, path('job-done', name, true), '{"output": [1, [2, 2], 3, {"a": 4}]}');

    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED' });
    const missing = { level: 40, msg: expect.stringMatching(/^The stream lacks 2 of 4 chunks/) };
    expect(JSON.parse(await readLog(platform, id))).toMatchObject(missing);
  });

  it('counts a value as one that is too large for one chunk', async () => {
    const { id, name, platform } = await start();
    const large = Array.from({ length: 40 }, () => 'x'.repeat(65_536));
    await post(platform, name, large);
    const output = JSON.stringify({ output: [large, 2] });
    await send(platform, path('job-done', name, true), output);

    const missing = { msg: expect.stringMatching(/^The stream lacks 1 of 2 chunks/) };
    expect(JSON.parse(await readLog(platform, id))).toMatchObject(missing);
  });

  it('is not assumed of a client that may send several values as one chunk', async () => {
    const { id, name, platform } = await start();
    await post(platform, name, [1, 2]);
    await ask(platform, path('job-done', name, true), {
      ...{ method: 'POST', body: '{"output": [1, 2]}', headers: { 'user-agent': 'go-sdk' } },
    });

    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED' });
    expect(await readLog(platform, id)).toBe('');
  });

  it.each([
    ['with all of them', '{"output": [1]}'],
    ['without the values', '{"output": []}'],
    ['that is no list', '{"output": {"a": [1, 2]}}'],
  ])('is not assumed of a result %s', async (_name, body) => {
    const { id, name, platform } = await start();
    await post(platform, name, 1);
    await send(platform, path('job-done', name, true), body);

    expect(await readRecord(platform, id)).toMatchObject({ status: 'COMPLETED' });
    expect(await readLog(platform, id)).toBe('');
  });
});
