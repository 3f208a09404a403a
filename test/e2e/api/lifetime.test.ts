// How long jobs stay: the retention of those that have ended, and the time to live of all.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import type { Step } from '../../support/handlers/api-script.ts';
import { readEvents } from '../../support/network/event-stream.ts';
import { Gate } from '../../support/network/gate.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { until } from '../../support/until.ts';

const failure: Step = { do: 'throw', message: 'no', as: 'non-retryable' };

const onJob = [
  ['GET', 'status'],
  ['GET', 'stream'],
  ['GET', 'logs'],
  ['POST', 'cancel'],
  ['POST', 'retry'],
] as const;

/** Resolves when the job is no longer there. */
async function untilGone(endpoint: EndpointCaller, id: string): Promise<void> {
  await until(async () => (await endpoint.get(`status/${id}`)).status === 404, { everyMs: 50 });
}

async function cancelNew(endpoint: EndpointCaller): Promise<string> {
  const id = await endpoint.run({});
  await endpoint.post(`cancel/${id}`);
  return id;
}

// Each waits for a second of its own: together they take as long as one.
describe.concurrent('retention', () => {
  let platform: PlatformProcess;
  let script: EndpointCaller;
  let unserved: EndpointCaller;

  beforeAll(async () => {
    platform = await PlatformProcess.start({
      endpoints: ['script', 'unserved', 'counted'],
      args: ['--retain-run-ms', '1000', '--retain-runsync-ms', '600000'],
    });
    script = new EndpointCaller(platform, 'script');
    unserved = new EndpointCaller(platform, 'unserved');
    platform.startWorker('script', 'api-script.ts', '--unsupervised');
  });
  afterAll(() => platform.close());

  it('ends with 404 from every operation on the job, including retry', async () => {
    const id = await script.run({ steps: [failure] });
    await script.untilStatus(id, 'FAILED');
    await untilGone(script, id);
    for (const [method, operation] of onJob) {
      await readProblem(await script.get(`${operation}/${id}`, { method }), 404);
    }
    expect((await script.list()).jobs.map((job) => job.id)).not.toContain(id);
  });

  it('does not change the counts of health', async () => {
    const counted = new EndpointCaller(platform, 'counted');
    platform.startWorker('counted', 'api-script.ts', '--unsupervised');
    const id = await counted.run({ steps: [] });
    await counted.untilStatus(id, 'COMPLETED');
    await untilGone(counted, id);
    expect((await counted.health()).jobs.completed).toBe(1);
  });

  it('frees the idempotency key', async () => {
    const options = { idempotencyKey: 'again' };
    const id = await unserved.run({ n: 1 }, options);
    await unserved.post(`cancel/${id}`);
    await untilGone(unserved, id);
    expect(await unserved.run({ n: 2 }, options)).not.toBe(id);
  });

  it('has a separate value for runsync', async () => {
    const record = await script.runsync({ steps: [] });
    const id = await cancelNew(unserved);
    await untilGone(unserved, id);
    expect(await script.status(record.id)).toEqual(record);
  });

  it('does not touch jobs that have not ended', async () => {
    const waiting = await unserved.run({});
    await untilGone(unserved, await cancelNew(unserved));
    expect((await unserved.status(waiting)).status).toBe('IN_QUEUE');
  });

  it('is overridden by the ttl parameter of status', async () => {
    const kept = await cancelNew(unserved);
    expect((await unserved.get(`status/${kept}?ttl=60000`)).status).toBe(200);
    await untilGone(unserved, await cancelNew(unserved));
    expect((await unserved.status(kept)).status).toBe('CANCELLED');
  });

  it('restarts when a job ends again after a retry', async () => {
    const id = await script.run({ steps: [{ ...failure, onlyInAttempt: 1 }] });
    await script.untilStatus(id, 'FAILED');
    await script.post(`retry/${id}`);
    expect((await script.untilEnd(id)).status).toBe('COMPLETED');
    await untilGone(script, id);
  });
});

describe('the time to live', () => {
  let platform: PlatformProcess;
  let script: EndpointCaller;
  let unserved: EndpointCaller;

  beforeAll(async () => {
    platform = await PlatformProcess.start({ endpoints: ['script', 'unserved'] });
    script = new EndpointCaller(platform, 'script');
    unserved = new EndpointCaller(platform, 'unserved');
    platform.startWorker('script', 'api-script.ts', '--unsupervised');
  });
  afterAll(() => platform.close());

  it.each(['9999', '604800001', '-1', '10000.5', 'abc', ''])(
    'makes status return 422 with its range: ttl=%s',
    async (ttl) => {
      const id = await unserved.run({});
      const { errors } = await readProblem(await unserved.get(`status/${id}?ttl=${ttl}`), 422);
      expect(errors).toEqual([expect.stringMatching(/^ttl: .*10000.*604800000/)]);
    },
  );

  it.each(['10000', '604800000'])('may be %s', async (ttl) => {
    const id = await unserved.run({});
    expect((await unserved.get(`status/${id}?ttl=${ttl}`)).status).toBe(200);
  });

  // All that has to be waited for is waited for together: no ttl is shorter than ten seconds.
  it('removes a job in any state, stops its handler and notifies waiting callers', async () => {
    const policy = { ttl: 10_000 };
    const stop = new Gate(platform.folder);
    const wait: Step = {
      do: 'wait',
      file: new Gate(platform.folder).path,
      stopFile: stop.path,
    };
    const synced = unserved.post('runsync?wait=60000', { input: {}, policy });
    const running = await script.run({ steps: [{ do: 'yield', value: 1 }, wait] }, { policy });
    const ended = await script.run({ steps: [failure] }, { policy });
    const waiting = await unserved.run({});
    await unserved.get(`status/${waiting}?ttl=10000`);
    const prolonged = await unserved.run({}, { policy });
    await unserved.get(`status/${prolonged}?ttl=60000`);
    const headers = { accept: 'text/event-stream' };
    const stream = await script.get(`stream/${running}`, { headers });
    const events = await Array.fromAsync(readEvents(stream));
    expect(events.map(({ event }) => event)).toEqual(['message', 'expired']);
    await untilGone(script, running);
    await untilGone(script, ended);
    await untilGone(unserved, waiting);
    await readProblem(await script.post(`retry/${ended}`), 404);
    await readProblem(await synced, 404);
    expect(await stop.untilLines(1)).toHaveLength(1);
    expect((await unserved.status(prolonged)).status).toBe('IN_QUEUE');
    const { inProgress } = (await script.health()).jobs;
    expect(inProgress).toBe(0);
  });
});
