// Submissions that share requests. The service is a real HTTP server that answers by a script.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { ApiError, UnreachableError } from '../../../../src/client/api-caller.ts';
import { type ClientOptions, createClient } from '../../../../src/client.ts';
import {
  hangUp,
  json,
  numbersOf,
  problem,
  refuse,
  type SubmissionServer,
  startSubmissionServer,
} from '../../../support/network/submission-server.ts';

async function start(options: Partial<ClientOptions> = {}) {
  const server = await startSubmissionServer();
  const client = createClient({ url: server.url, endpoint: 'demo', ...options });
  return { server, client };
}

const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

const pathsOf = ({ seen }: SubmissionServer) => seen.map(({ path }) => path.slice(9));

describe('jobs that are submitted', () => {
  it('have a request each if they come one after the other', async () => {
    const { client, server } = await start();
    for (const n of range(1, 3)) expect((await client.run({ n })).id).toBe(`job-${n}`);
    expect(pathsOf(server)).toEqual(['run', 'run', 'run']);
  });

  it('share a request if they come together, and each caller has its own result', async () => {
    const { client, server } = await start();
    const jobs = await Promise.all(range(1, 5).map((n) => client.run({ n })));
    expect(jobs.map(({ id }) => id)).toEqual(range(1, 5).map((n) => `job-${n}`));
    expect(pathsOf(server)).toEqual(['jobs']);
  });

  it('wait while two requests are under way, and share the next request', async () => {
    const { client, server } = await start();
    server.hold();
    const first = client.run({ n: 1 });
    await server.arrived(1);
    const second = client.run({ n: 2 });
    await server.arrived(2);
    const further = [client.run({ n: 3 }), client.run({ n: 4 })];
    server.seen[1]?.answer();
    expect((await second).id).toBe('job-2');
    await server.arrived(3);
    server.seen[2]?.answer();
    expect((await Promise.all(further)).map(({ id }) => id)).toEqual(['job-3', 'job-4']);
    expect(numbersOf(server)).toEqual([[1], [2], [3, 4]]);
    server.seen[0]?.answer();
    await first;
  });

  it('wait while a request of 8 jobs is under way, and share the next request', async () => {
    const { client, server } = await start();
    server.hold();
    const first = range(1, 8).map((n) => client.run({ n }));
    await server.arrived(1);
    const further = range(9, 10).map((n) => client.run({ n }));
    await new Promise((resolve) => setImmediate(resolve));
    further.push(client.run({ n: 11 }));
    server.seen[0]?.answer();
    await server.arrived(2);
    server.seen[1]?.answer();
    await Promise.all([...first, ...further]);
    expect(numbersOf(server)).toEqual([range(1, 8), range(9, 11)]);
  });

  it('do not wait while a request of 8 jobs is under way if they fill a request', async () => {
    const { client, server } = await start();
    server.hold();
    const first = range(1, 8).map((n) => client.run({ n }));
    await server.arrived(1);
    const further = range(9, 108).map((n) => client.run({ n }));
    await server.arrived(2);
    for (const { answer } of server.seen) answer();
    await Promise.all([...first, ...further]);
    expect(numbersOf(server)).toEqual([range(1, 8), range(9, 108)]);
  });

  it('have requests of at most 100 in great number', async () => {
    const { client, server } = await start();
    const jobs = await Promise.all(range(1, 250).map((n) => client.run({ n })));
    expect(jobs.map(({ id }) => id)).toEqual(range(1, 250).map((n) => `job-${n}`));
    expect(numbersOf(server).map(({ length }) => length)).toEqual([100, 100, 50]);
  });

  it('have requests of at most 1 MB with much input', async () => {
    const { client, server } = await start();
    const text = 'x'.repeat(60_000);
    await Promise.all(range(1, 20).map((n) => client.run({ n, text })));
    expect(
      numbersOf(server)
        .map(({ length }) => length)
        .sort(),
    ).toEqual([16, 4]);
  });

  it('have a request each with more than 64 KB, or with a trace', async () => {
    const { client, server } = await start();
    const traceparent = `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`;
    await Promise.all([
      client.run({ n: 1, text: 'x'.repeat(70_000) }),
      client.run({ n: 2 }, { traceparent }),
      client.run({ n: 3 }),
    ]);
    expect(pathsOf(server)).toEqual(['run', 'run', 'run']);
    const traced = server.seen.find(({ jobs }) => jobs[0]?.input.n === 2);
    expect(traced?.headers['traceparent']).toBe(traceparent);
  });

  it('have a request each with shared requests turned off', async () => {
    const { client, server } = await start({ sharedRequests: false });
    await Promise.all(range(1, 5).map((n) => client.run({ n })));
    expect(pathsOf(server)).toEqual(['run', 'run', 'run', 'run', 'run']);
  });

  it('are sent as they were if they are changed afterwards', async () => {
    const { client, server } = await start();
    const input = { n: 1 };
    const submitted = [client.run(input), client.run({ n: 2 })];
    await Promise.resolve();
    input.n = 7;
    await Promise.all(submitted);
    expect(numbersOf(server)).toEqual([[1, 2]]);
  });
});

describe('a refusal', () => {
  it('rejects only its caller for one job', async () => {
    const { client, server } = await start();
    const refused = { error: problem(409, 'conflict') };
    server.script.push(json(200, { jobs: [{ id: 'a', status: 'IN_QUEUE' }, refused] }));
    const [first, second] = await Promise.allSettled([client.run({ n: 1 }), client.run({ n: 2 })]);
    expect(first).toMatchObject({ value: { id: 'a' } });
    expect(second).toMatchObject({ reason: expect.any(ApiError) });
    expect(second).toMatchObject({ reason: { status: 409, problem: { code: 'conflict' } } });
  });

  it('rejects only its caller for the content of one job', async () => {
    const { client, server } = await start();
    const culprit = 11;
    server.hold();
    const results = Promise.allSettled(range(1, 20).map((n) => client.run({ n })));
    let answered = 0;
    // As the platform does: one invalid job refuses the request.
    const answerAll = setInterval(() => {
      for (const { answer, jobs } of server.seen.slice(answered)) {
        answered++;
        const isInvalid = jobs.some(({ input }) => input.n === culprit);
        answer(isInvalid ? refuse(422, 'invalid') : undefined);
      }
    }, 1);
    const settled = await results;
    clearInterval(answerAll);
    for (const [index, result] of settled.entries()) {
      if (index + 1 === culprit) expect(result).toMatchObject({ reason: { status: 422 } });
      else expect(result).toMatchObject({ value: { id: `job-${index + 1}` } });
    }
    expect(server.seen.length).toBeLessThan(15);
  });

  it('rejects all its callers for the whole request', async () => {
    const { client, server } = await start();
    server.script.push(refuse(404, 'not_found'));
    const settled = await Promise.allSettled([client.run({ n: 1 }), client.run({ n: 2 })]);
    for (const each of settled) expect(each).toMatchObject({ reason: { status: 404 } });
    expect(server.seen).toHaveLength(1);
  });

  it('is waited out for now, and the jobs share a request again', async () => {
    const { client, server } = await start();
    server.script.push(refuse(503, 'unavailable'));
    await Promise.all([client.run({ n: 1 }), client.run({ n: 2 })]);
    expect(numbersOf(server)).toEqual([
      [1, 2],
      [1, 2],
    ]);
  });

  it('is waited out for a full queue as long as with a request of its own', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { client, server } = await start();
    const full = { error: problem(429, 'queue_full') };
    server.script.push(json(200, { jobs: [{ id: 'a', status: 'IN_QUEUE' }, full] }));
    const first = client.run({ n: 1 });
    const second = client.run({ n: 2 });
    expect((await first).id).toBe('a');
    await vi.advanceTimersByTimeAsync(4_900);
    await client.run({ n: 3 });
    expect(numbersOf(server)).toEqual([[1, 2], [3]]);
    await vi.advanceTimersByTimeAsync(100);
    expect((await second).id).toBe('job-2');
  });

  it('rejects the callers if it lasts', async () => {
    const { client, server } = await start({ repeats: 1 });
    server.script.push(refuse(503, 'unavailable'), refuse(503, 'unavailable'));
    const settled = await Promise.allSettled([client.run({ n: 1 }), client.run({ n: 2 })]);
    for (const each of settled) expect(each).toMatchObject({ reason: { status: 503 } });
    expect(server.seen).toHaveLength(2);
  });

  it('makes the requests smaller by the rate limit', async () => {
    const { client, server } = await start();
    server.script.push(refuse(429, 'rate_limited'));
    await Promise.all(range(1, 8).map((n) => client.run({ n })));
    expect(numbersOf(server).map(({ length }) => length)).toEqual([8, 4, 4]);
  });

  it('makes the requests smaller if the number of jobs is its reason', async () => {
    const { client, server } = await start();
    server.script.push(refuse(422, 'invalid'));
    await Promise.all(range(1, 8).map((n) => client.run({ n })));
    expect(numbersOf(server)).toHaveLength(3);
    for (const { length } of numbersOf(server).slice(1)) expect(length).toBe(4);
  });
});

describe('an outage', () => {
  it('ends the calls that could start a second job, and no other', async () => {
    const { client, server } = await start();
    server.script.push(hangUp);
    const [plain, named] = await Promise.allSettled([
      client.run({ n: 1 }),
      client.run({ n: 2 }, { idempotencyKey: 'k' }),
    ]);
    expect(plain).toMatchObject({ reason: expect.any(UnreachableError) });
    expect(named).toMatchObject({ value: { id: 'job-2' } });
    expect(numbersOf(server)).toEqual([[1, 2], [2]]);
  });

  it('is what an answer without all the jobs is', async () => {
    const { client, server } = await start();
    server.script.push(json(200, { jobs: [{ id: 'a', status: 'IN_QUEUE' }] }));
    const settled = await Promise.allSettled([client.run({ n: 1 }), client.run({ n: 2 })]);
    for (const each of settled)
      expect(each).toMatchObject({ reason: expect.any(UnreachableError) });
  });
});

describe('a request without an answer', () => {
  it('holds up no others after 5 s', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { client, server } = await start();
    server.hold();
    const silent: Promise<unknown>[] = [];
    for (const n of [1, 2]) {
      silent.push(client.run({ n }));
      await server.arrived(n);
    }
    const further = client.run({ n: 3 });
    await vi.advanceTimersByTimeAsync(5_000);
    await server.arrived(3);
    server.seen[2]?.answer();
    expect((await further).id).toBe('job-3');
    for (const { answer } of server.seen.slice(0, 2)) answer();
    await Promise.all(silent);
  });

  it('holds up no others while its only job waits for a retry', async () => {
    const { client, server } = await start();
    const full = refuse(429, 'queue_full', { 'retry-after': '50' });
    server.script.push(full, full);
    const abort = new AbortController();
    const refused: Promise<unknown>[] = [];
    for (const n of [1, 2]) {
      refused.push(client.run({ n }, { signal: abort.signal }));
      await server.arrived(n);
    }
    expect((await client.run({ n: 3 })).id).toBe('job-3');
    abort.abort();
    for (const { status } of await Promise.allSettled(refused)) expect(status).toBe('rejected');
  });
});

describe('a call that is aborted', () => {
  it('is not sent if its request has not begun', async () => {
    const { client, server } = await start();
    server.hold();
    const underWay: Promise<unknown>[] = [];
    for (const n of [1, 2]) {
      underWay.push(client.run({ n }));
      await server.arrived(n);
    }
    const abort = new AbortController();
    const aborted = client.run({ n: 3 }, { signal: abort.signal });
    const other = client.run({ n: 4 });
    await Promise.resolve();
    abort.abort(new Error('enough'));
    await expect(aborted).rejects.toThrow('enough');
    for (const { answer } of server.seen) answer();
    await server.arrived(3);
    server.seen[2]?.answer();
    await Promise.all([...underWay, other]);
    expect(numbersOf(server)).toEqual([[1], [2], [4]]);
  });

  it('rejects at once after its request was sent, and the others have their results', async () => {
    const { client, server } = await start();
    server.hold();
    const abort = new AbortController();
    const aborted = client.run({ n: 1 }, { signal: abort.signal });
    const other = client.run({ n: 2 });
    await server.arrived(1);
    abort.abort(new Error('enough'));
    await expect(aborted).rejects.toThrow('enough');
    server.seen[0]?.answer();
    expect((await other).id).toBe('job-2');
  });

  it('ends its request with the last caller', async () => {
    const { client, server } = await start();
    server.hold();
    const aborts = [new AbortController(), new AbortController()];
    const calls = aborts.map(({ signal }, n) => client.run({ n }, { signal }));
    const settled = Promise.allSettled(calls);
    await server.arrived(1);
    aborts[0]?.abort();
    expect(server.seen[0]?.isClosed()).toBe(false);
    aborts[1]?.abort();
    await settled;
    await expect.poll(() => server.seen[0]?.isClosed()).toBe(true);
  });

  it('is not sent again during the wait for a retry', async () => {
    const { client, server } = await start();
    server.script.push(refuse(503, 'unavailable'));
    const abort = new AbortController();
    const aborted = client.run({ n: 1 }, { signal: abort.signal });
    const other = client.run({ n: 2 });
    await server.arrived(1);
    abort.abort(new Error('enough'));
    await expect(aborted).rejects.toThrow('enough');
    await other;
    expect(numbersOf(server)).toEqual([[1, 2], [2]]);
  });

  it('rejects with its reason if it was aborted before it is made', async () => {
    const { client, server } = await start();
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(client.run({ n: 1 }, { signal })).rejects.toThrow('enough');
    expect(server.seen).toHaveLength(0);
  });
});
