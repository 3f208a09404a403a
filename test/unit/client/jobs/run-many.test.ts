// `runMany` of the client. The service is a real HTTP server that answers by a script.
import { describe, expect, it } from 'vitest';
import { createClient, type RunManyProgress } from '../../../../src/client.ts';
import {
  hangUp,
  json,
  numbersOf,
  problem,
  refuse,
  startSubmissionServer,
} from '../../../support/network/submission-server.ts';

async function start() {
  const server = await startSubmissionServer();
  const client = createClient({ url: server.url, endpoint: 'demo', sharedRequests: false });
  return { server, client };
}

const jobs = (count: number) => Array.from({ length: count }, (_, n) => ({ input: { n } }));

describe('runMany', () => {
  it('submits 100 jobs with each request, and returns results in the order of the jobs', async () => {
    const { client, server } = await start();
    const results = await client.runMany(jobs(1_050));
    expect(results).toHaveLength(1_050);
    for (const [n, result] of results.entries()) {
      expect(result).toEqual({
        status: 'fulfilled',
        value: { id: `job-${n}`, status: 'IN_QUEUE' },
      });
    }
    expect(server.seen.length).toBeLessThan(20);
    for (const { length } of numbersOf(server)) expect(length).toBeLessThanOrEqual(100);
  });

  it('sends the options of each job', async () => {
    const { client, server } = await start();
    const named = { input: { n: 1 }, idempotencyKey: 'k', policy: { ttl: 10_000 } };
    await client.runMany([named, { input: { n: 2 } }]);
    expect(server.seen[0]?.jobs).toEqual([named, { input: { n: 2 } }]);
  });

  it('sends the trace with all jobs', async () => {
    const { client, server } = await start();
    const traceparent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`;
    await client.runMany(jobs(3), { traceparent });
    expect(server.seen.map(({ headers }) => headers['traceparent'])).toEqual([traceparent]);
  });

  it('rejects only the jobs that are refused, and reports each result', async () => {
    const { client, server } = await start();
    const reference = { id: 'a', status: 'IN_QUEUE' };
    const conflict = { error: problem(409, 'conflict') };
    server.script.push(json(200, { jobs: [reference, conflict, reference] }));
    const seen: RunManyProgress[] = [];
    const results = await client.runMany(jobs(3), { onProgress: (each) => void seen.push(each) });
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(results[1]).toMatchObject({ reason: { status: 409, problem: { code: 'conflict' } } });
    expect(seen.map(({ done }) => done)).toEqual([1, 2, 3]);
    expect(seen.at(-1)?.failed).toBe(1);
    for (const { index, result } of seen) expect(result).toBe(results[index]);
  });

  it('repeats a request after an outage only for jobs with an idempotency key', async () => {
    const { client, server } = await start();
    server.script.push(hangUp);
    const results = await client.runMany([
      { input: { n: 0 } },
      { input: { n: 1 }, idempotencyKey: 'k' },
    ]);
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
    expect(numbersOf(server)).toEqual([[0, 1], [1]]);
  });

  it('rejects only what is no job, and names its place', async () => {
    const { client, server } = await start();
    // As plain JavaScript or a line of a file may pass them.
    const given = JSON.parse('[null, {"input": {"n": 1}}, "text"]');
    const results = await client.runMany([...given, undefined]);
    expect(results.map(({ status }) => status)).toEqual([
      'rejected',
      'fulfilled',
      'rejected',
      'rejected',
    ]);
    expect(results[3]).toMatchObject({
      reason: new TypeError('jobs[3] must be an object with an input, not undefined'),
    });
    expect(numbersOf(server)).toEqual([[1]]);
  });

  it('rejects only the job whose input is not JSON', async () => {
    const { client } = await start();
    const results = await client.runMany([{ input: { n: 1n } }, { input: { n: 2 } }]);
    expect(results).toMatchObject([{ reason: expect.any(TypeError) }, { status: 'fulfilled' }]);
  });

  it('reads an iterator no further than a few requests', async () => {
    const { client, server } = await start();
    server.hold();
    let read = 0;
    async function* generate() {
      for (; ; read++) yield { input: { n: read } };
    }
    const abort = new AbortController();
    const submitted = client.runMany(generate(), { signal: abort.signal });
    await server.arrived(2);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(read).toBeLessThanOrEqual(301);
    abort.abort(new Error('enough'));
    await expect(submitted).rejects.toThrow('enough');
    await expect.poll(() => server.seen.every((each) => each.isClosed())).toBe(true);
  });

  it('holds only a few large jobs at a time', async () => {
    const { client, server } = await start();
    server.hold();
    let read = 0;
    function* generate() {
      for (; read < 20; read++) yield { input: { n: read, text: 'x'.repeat(3_000_000) } };
    }
    const submitted = client.runMany(generate());
    await server.arrived(2);
    expect(read).toBe(2);
    for (let answered = 0; answered < 20; answered++) {
      await server.arrived(answered + 1);
      server.seen[answered]?.answer();
    }
    const results = await submitted;
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(20);
  });

  it('rejects at once if its source waits for ever', async () => {
    const { client } = await start();
    async function* wait() {
      await new Promise(() => {});
      yield { input: {} };
    }
    const abort = new AbortController();
    const submitted = client.runMany(wait(), { signal: abort.signal });
    await Promise.resolve();
    abort.abort(new Error('enough'));
    await expect(submitted).rejects.toThrow('enough');
  });

  it('rejects with what its source or onProgress throws', async () => {
    const { client, server } = await start();
    function* broken() {
      yield* jobs(1);
      throw new Error('no more lines');
    }
    await expect(client.runMany(broken())).rejects.toThrow('no more lines');
    server.seen.length = 0;
    const onProgress = () => {
      throw new Error('no terminal');
    };
    await expect(client.runMany(jobs(1_000), { onProgress })).rejects.toThrow('no terminal');
    expect(server.seen.length).toBeLessThanOrEqual(4);
  });

  it('rejects all jobs with the refusal of a request', async () => {
    const { client, server } = await start();
    server.script.push(refuse(404, 'not_found'));
    const results = await client.runMany(jobs(3));
    for (const result of results) expect(result).toMatchObject({ reason: { status: 404 } });
  });

  it('returns an empty list for no job', async () => {
    const { client } = await start();
    expect(await client.runMany([])).toEqual([]);
  });
});
