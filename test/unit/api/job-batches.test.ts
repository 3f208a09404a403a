// Several jobs submitted with one request.
import { describe, expect, it } from 'vitest';
import { RateGate } from '../../../src/api/limits/rate-limit.ts';
import { errorAt } from '../../support/answers.ts';
import { type Platform, readJson, startPlatform, submitJob, takeJob } from './platform.ts';

type Answers = { id?: string; status?: string; error?: { code: string; detail: string } }[];

async function submitJobs({ post }: Platform, jobs: unknown, init?: RequestInit): Promise<Answers> {
  const response = await post('/v2/demo/jobs', { jobs }, init);
  expect(response.status).toBe(200);
  const body: { jobs: Answers } = JSON.parse(await response.text());
  return body.jobs;
}

async function countJobs({ call }: Platform): Promise<number> {
  const { jobs } = JSON.parse(await (await call('/v2/demo/jobs?limit=1000')).text());
  return jobs.length;
}

describe('POST /v2/:endpoint/jobs', () => {
  it('queues the jobs in order and passes on the unchanged bytes of each input', async () => {
    const platform = await startPlatform();
    const inputs = ['{"b":1.0,  "a":"\\u0041"}', '{}', `{"text":"${'x'.repeat(70_000)}"}`];
    const jobs = inputs.map((input) => `{"input":${input}}`);
    const response = await platform.post('/v2/demo/jobs', `{"jobs":[${jobs.join(',')}]}`);
    expect(response.headers.get('content-type')).toMatch(/^application\/json/);
    const { jobs: submitted }: { jobs: Answers } = JSON.parse(await response.text());
    expect(submitted.map(({ status }) => status)).toEqual(['IN_QUEUE', 'IN_QUEUE', 'IN_QUEUE']);
    for (const [index, input] of inputs.entries()) {
      const job = await takeJob(platform);
      expect(job.id).toBe(submitted[index]?.id);
      expect(job.id).toMatch(
        /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
      );
      expect(job.input.toString()).toBe(input);
      await job.complete('{}');
    }
  });

  it('applies the policy of each job', async () => {
    const platform = await startPlatform();
    const [last, first] = await submitJobs(platform, [
      { input: {} },
      { input: {}, policy: { priority: 9, executionTimeout: 5_000 } },
    ]);
    expect((await takeJob(platform)).id).toBe(first?.id);
    const details = await readJson(await platform.call(`/v2/demo/jobs/${first?.id}`));
    expect(details).toMatchObject({ priority: 9, executionTimeout: 5_000 });
    expect((await takeJob(platform)).id).toBe(last?.id);
  });

  it.each([
    ['{"jobs":[', 400, undefined],
    ['{"jobs":[]}', 422, 'jobs'],
    ['{"jobs":[{"input":{}},{"input":{},"policy":{"ttl":1}}]}', 422, 'jobs[1].policy.ttl'],
    ['{"jobs":[{"input":{}},{"input":[]}]}', 422, 'jobs[1].input'],
    [`{"jobs":[{"input":{},"a":"${'x'.repeat(70_000)}"}]}`, 413, undefined],
    [`{"jobs":[{"input":{"a":"${'x'.repeat(10_485_760)}"}}]}`, 413, undefined],
  ])('refuses the whole request if a part of it is invalid: %s', async (body, status, path) => {
    const platform = await startPlatform();
    const response = await platform.post('/v2/demo/jobs', body);
    expect(response.status).toBe(status);
    const { errors } = await readJson(response);
    expect(errors).toEqual(path && [errorAt(path)]);
    expect(await countJobs(platform)).toBe(0);
  });

  it('refuses a header Idempotency-Key, which would stand for all jobs', async () => {
    const { post } = await startPlatform();
    const headers = { 'idempotency-key': 'k' };
    const response = await post('/v2/demo/jobs', { jobs: [{ input: {} }] }, { headers });
    expect(response.status).toBe(422);
    expect((await readJson(response))['errors']).toEqual([errorAt('Idempotency-Key')]);
  });

  it('refuses the whole request for an unknown endpoint', async () => {
    const { post } = await startPlatform();
    expect((await post('/v2/none/jobs', { jobs: [{ input: {} }] })).status).toBe(404);
  });

  it('tells which jobs the full queue refuses, and queues the others', async () => {
    const platform = await startPlatform();
    await platform.post('/v1/endpoints/demo', { maxQueued: 3 }, { method: 'PATCH' });
    const first = await submitJob(platform, { input: { n: 1 }, idempotencyKey: 'k' });
    const job = { input: { n: 1 }, idempotencyKey: 'k' };
    const answers = await submitJobs(platform, [{ input: {} }, { input: {} }, { input: {} }, job]);
    expect(answers.map(({ error, status }) => error?.code ?? status)).toEqual([
      ...['IN_QUEUE', 'IN_QUEUE', 'queue_full', 'IN_QUEUE'],
    ]);
    expect(answers[2]?.error).toMatchObject({ status: 429, title: 'Queue is full' });
    expect(answers[3]?.id).toBe(first);
    expect(await countJobs(platform)).toBe(3);
  });

  it('makes one job of two with the same idempotency key, as two calls of run do', async () => {
    const platform = await startPlatform();
    const job = { input: { n: 1 }, idempotencyKey: 'k' };
    const [one, two, other] = await submitJobs(platform, [job, job, { ...job, input: { n: 2 } }]);
    expect(two).toEqual(one);
    expect(other?.error).toMatchObject({ code: 'conflict', status: 409 });
    expect(await submitJob(platform, job)).toBe(one?.id);
    expect((await submitJobs(platform, [job]))[0]).toEqual(one);
    expect(await countJobs(platform)).toBe(1);
  });

  it('puts all jobs into the trace of the request', async () => {
    const platform = await startPlatform();
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
    await submitJobs(platform, [{ input: {} }, { input: {} }], { headers: { traceparent } });
    const identity = { workerId: 'w', incarnation: 1 };
    const hello = { ...identity, protocol: 1, version: '1', slots: 2, devices: [], outbox: [] };
    await platform.link.hello(hello);
    const take = { ...identity, takeId: 't', max: 2, waitMs: 5_000, held: [] };
    const leases = await platform.link.take(take, new AbortController().signal);
    expect(leases.map((lease) => lease.traceparent)).toEqual([traceparent, traceparent]);
  });

  it('accepts jobs with large inputs beside small ones', async () => {
    const platform = await startPlatform();
    const inputs = [300_000, 10, 900_000, 400_000, 200_000].map((length, n) => ({
      n,
      text: 'x'.repeat(length),
    }));
    const submitted = await submitJobs(
      platform,
      inputs.map((input) => ({ input })),
    );
    for (const [index, input] of inputs.entries()) {
      const job = await takeJob(platform);
      expect(job.id).toBe(submitted[index]?.id);
      expect(JSON.parse(job.input.toString())).toEqual(input);
      await job.complete('{}');
    }
  });

  it('counts as one call for each job', async () => {
    const rateGate = new RateGate({ minute: 10 });
    const platform = await startPlatform({ server: { rateGate } });
    const send = (count: number) =>
      platform.post('/v2/demo/jobs', {
        jobs: Array.from({ length: count }, () => ({ input: {} })),
      });
    const first = await send(7);
    expect([first.status, first.headers.get('ratelimit')]).toEqual([200, '"minute";r=3;t=60']);
    const refused = await send(4);
    expect(refused.status).toBe(429);
    expect(refused.headers.get('ratelimit')).toMatch(/^"minute";r=2;/);
    expect(await readJson(refused)).toMatchObject({ code: 'rate_limited' });
    expect((await send(2)).status).toBe(200);
    expect((await send(1)).status).toBe(429);
    expect(await platform.queue.health('demo')).toMatchObject({ jobs: { inQueue: 9 } });
  });

  it('reads no more bodies once refused requests have used up the rate limit', async () => {
    const platform = await startPlatform({ server: { rateGate: new RateGate({ minute: 4 }) } });
    const jobs = Array.from({ length: 3 }, () => ({ input: {} }));
    const statuses: number[] = [];
    for (let n = 0; n < 4; n++) {
      statuses.push((await platform.post('/v2/demo/jobs', { jobs })).status);
    }
    expect(statuses).toEqual([200, 429, 429, 429]);
    expect((await platform.post('/v2/demo/jobs', '{')).status).toBe(429);
  });

  it('refuses more jobs than the rate limit allows at any time', async () => {
    const rateGate = new RateGate({ minute: 10, hour: 5 });
    const platform = await startPlatform({ server: { rateGate } });
    const jobs = Array.from({ length: 6 }, () => ({ input: {} }));
    const refused = await platform.post('/v2/demo/jobs', { jobs });
    expect(refused.status).toBe(422);
    expect((await readJson(refused))['errors']).toEqual([errorAt('jobs')]);
  });
});
