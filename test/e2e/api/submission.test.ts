// How jobs come into a queue and out of it again: ids, order, priority, delay, idempotency, the limit.

import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jobRef, readOk, readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import { Gate } from '../../support/network/gate.ts';
import { PlatformProcess } from '../../support/processes.ts';

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

let platform: PlatformProcess;
/** With a worker that runs one job at a time. */
let served: EndpointCaller;
/** Without any worker. */
let unserved: EndpointCaller;

beforeAll(async () => {
  platform = await PlatformProcess.start({
    endpoints: ['served', 'unserved', 'ordered', 'small'],
  });
  served = new EndpointCaller(platform, 'served');
  unserved = new EndpointCaller(platform, 'unserved');
  platform.startWorker('served', 'api-script.ts', '--unsupervised', '--jobs-per-thread', '1');
});
afterAll(() => platform.close());

describe('run', () => {
  it('answers with only a UUIDv7 and IN_QUEUE', async () => {
    const answer = await readOk(await unserved.post('run', { input: {} }), jobRef);
    expect(answer).toEqual({ id: expect.stringMatching(UUID_V7), status: 'IN_QUEUE' });
  });

  it('creates a queued job that status returns at once', async () => {
    const id = await unserved.run({});
    expect(await unserved.status(id)).toEqual({
      id,
      status: 'IN_QUEUE',
      attempt: 0,
      delayTime: expect.any(Number),
      executionTime: 0,
      waitReason: { code: 'no_worker', message: expect.any(String) },
    });
  });

  it('creates a job that is unknown at another endpoint', async () => {
    const id = await unserved.run({});
    await readProblem(await served.get(`status/${id}`), 404);
    await readProblem(await served.post(`cancel/${id}`), 404);
  });
});

describe('runsync', () => {
  it('gives its job an ID with the prefix sync-', async () => {
    const { id } = await served.runsync({ steps: [] });
    expect(id.slice(0, 5)).toBe('sync-');
    expect(id.slice(5)).toMatch(UUID_V7);
  });
});

describe('the order of jobs', () => {
  it('is by priority, then by submission', async () => {
    const ordered = new EndpointCaller(platform, 'ordered');
    const gate = new Gate(platform.folder);
    const submit = (text: string, policy: Record<string, number>) =>
      ordered.run({ steps: [{ do: 'note', file: gate.path, text }] }, { policy });
    await submit('default 1', {});
    await submit('low', { priority: 1 });
    await submit('high', { priority: 9 });
    await submit('default 2', { priority: 0 });
    await submit('high again', { priority: 9 });
    platform.startWorker('ordered', 'api-script.ts', '--unsupervised', '--jobs-per-thread', '1');
    expect(await gate.untilLines(5)).toEqual([
      'high',
      'high again',
      'low',
      'default 1',
      'default 2',
    ]);
  });
});

describe('policy.delay', () => {
  it('delays a job, while others start before it', async () => {
    const delayed = await served.run({ steps: [] }, { policy: { delay: 1_500 } });
    const later = await served.runsync({ steps: [] });
    expect(later.status).toBe('COMPLETED');
    expect((await served.status(delayed)).status).toBe('IN_QUEUE');
    expect(await served.untilStatus(delayed, 'COMPLETED')).toMatchObject({ attempt: 1 });
  });

  it('may be a week', async () => {
    const id = await unserved.run({}, { policy: { delay: 604_800_000, ttl: 604_800_000 } });
    expect((await unserved.status(id)).status).toBe('IN_QUEUE');
  });
});

describe('an idempotency key', () => {
  it('creates one job for two equal calls', async () => {
    const body = { input: { n: 1 }, idempotencyKey: 'equal calls' };
    const first = await readOk(await unserved.post('run', body), jobRef);
    expect(await readOk(await unserved.post('run', body), jobRef)).toEqual(first);
  });

  it('answers the second call with the current status of the job', async () => {
    const body = { input: { steps: [] }, idempotencyKey: 'by then' };
    const { id } = await readOk(await served.post('run', body), jobRef);
    await served.untilEnd(id);
    const again = await readOk(await served.post('run', body), jobRef);
    expect(again).toEqual({ id, status: 'COMPLETED' });
  });

  it('gives a repeated runsync the result of the first call', async () => {
    const options = { idempotencyKey: 'repeated runsync' };
    const first = await served.runsync({ steps: [], answer: 42 }, options);
    expect(first.output).toBe(42);
    expect(await served.runsync({ steps: [], answer: 42 }, options)).toEqual(first);
  });

  it('returns 409 for another body, and names the first job', async () => {
    const options = { idempotencyKey: 'another body' };
    const id = await unserved.run({ n: 1 }, options);
    const answer = await unserved.post('run', { input: { n: 2 }, ...options });
    expect((await readProblem(answer, 409)).detail).toContain(id);
  });

  it('applies to its endpoint only', async () => {
    const options = { idempotencyKey: 'one endpoint' };
    const id = await unserved.run({ steps: [] }, options);
    expect(await served.run({ steps: [] }, options)).not.toBe(id);
  });

  it('may have 255 characters', async () => {
    const options = { idempotencyKey: 'k'.repeat(255) };
    const id = await unserved.run({ n: 1 }, options);
    expect(await unserved.run({ n: 1 }, options)).toBe(id);
  });
});

describe('an endpoint whose queue is full', () => {
  let small: EndpointCaller;

  beforeAll(async () => {
    // There is no operation yet that sets an endpoint's limit: it is written where it is kept.
    await platform.process.end();
    const database = new DatabaseSync(join(platform.folder, 'data', 'millrace.db'));
    const { settings } =
      database.prepare("select settings from endpoint where id = 'small'").get() ?? {};
    const limited = { ...JSON.parse(String(settings)), maxQueued: 2 };
    database
      .prepare("update endpoint set settings = ? where id = 'small'")
      .run(JSON.stringify(limited));
    database.close();
    await platform.restart();
    small = new EndpointCaller(platform, 'small');
    await small.run({});
    await small.run({}, { policy: { delay: 60_000 } });
  });

  it.each(['run', 'runsync'])('refuses %s with 429 and Retry-After', async (operation) => {
    const answer = await small.post(operation, { input: {} });
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
    expect((await readProblem(answer, 429)).detail).toContain('2');
  });

  it('accepts jobs again when the queue is no longer full', async () => {
    expect((await small.post('purge-queue')).status).toBe(200);
    expect(await small.run({})).toMatch(UUID_V7);
  });
});
