// cancel and retry, in every status that a job can have.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jobRef, readOk, readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import type { Step } from '../../support/handlers/api-script.ts';
import { Gate } from '../../support/network/gate.ts';
import { PlatformProcess } from '../../support/processes.ts';

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

const failure: Step = { do: 'throw', message: 'no', as: 'non-retryable' };

/** A job of each status; those that wait or run go on doing so. */
const inStatus = {
  IN_QUEUE: () => script.run({ steps: [] }, { policy: { delay: 600_000 } }),
  IN_PROGRESS: () => startWaiting(),
  COMPLETED: async () => (await script.runsync({ steps: [] })).id,
  FAILED: async () => (await script.runsync({ steps: [failure] })).id,
  CANCELLED: async () => {
    const id = await unserved.run({});
    await unserved.post(`cancel/${id}`);
    return id;
  },
  TIMED_OUT: async () => {
    const file = new Gate(platform.folder).path;
    const steps = [{ do: 'wait', file, onlyInAttempt: 1 }];
    return (await script.runsync({ steps }, { policy: { executionTimeout: 1_000 } })).id;
  },
};

async function startWaiting(stop = new Gate(platform.folder)): Promise<string> {
  const file = new Gate(platform.folder).path;
  const id = await script.run({ steps: [{ do: 'wait', file, stopFile: stop.path }] });
  await script.untilStatus(id, 'IN_PROGRESS');
  return id;
}

describe('cancel', () => {
  it('removes a queued job from the queue', async () => {
    const id = await unserved.run({});
    const before = (await unserved.health()).jobs.inQueue;
    expect(await readOk(await unserved.post(`cancel/${id}`), jobRef)).toEqual({
      id,
      status: 'CANCELLED',
    });
    expect((await unserved.health()).jobs.inQueue).toBe(before - 1);
    expect(await unserved.status(id)).toMatchObject({
      status: 'CANCELLED',
      attempt: 0,
      executionTime: 0,
    });
  });

  it('answers at once for a running job and stops its handler', async () => {
    const stop = new Gate(platform.folder);
    const id = await startWaiting(stop);
    expect(await readOk(await script.post(`cancel/${id}`), jobRef)).toEqual({
      id,
      status: 'CANCELLED',
    });
    expect(await stop.untilLines(1)).toEqual(['cancelled']);
    expect((await script.status(id)).status).toBe('CANCELLED');
  });

  it('succeeds again for a CANCELLED job', async () => {
    const id = await inStatus.CANCELLED();
    expect(await readOk(await unserved.post(`cancel/${id}`), jobRef)).toEqual({
      id,
      status: 'CANCELLED',
    });
  });

  it.each(['COMPLETED', 'FAILED', 'TIMED_OUT'] as const)(
    'is answered with 409 naming the status of a job that is %s',
    async (status) => {
      const id = await inStatus[status]();
      expect((await readProblem(await script.post(`cancel/${id}`), 409)).detail).toContain(status);
      expect((await script.status(id)).status).toBe(status);
    },
  );
});

describe('retry', () => {
  it('runs a FAILED job again with the same ID and input', async () => {
    const steps = [{ ...failure, onlyInAttempt: 1 }];
    const { id } = await script.runsync({ steps, answer: { kept: 'é' } });
    expect(await readOk(await script.post(`retry/${id}`), jobRef)).toEqual({
      id,
      status: 'IN_QUEUE',
    });
    const record = await script.untilEnd(id);
    expect(record).toMatchObject({ status: 'COMPLETED', attempt: 2, output: { kept: 'é' } });
    expect(record).not.toHaveProperty('error');
  });

  it('runs a TIMED_OUT job again', async () => {
    const id = await inStatus.TIMED_OUT();
    await readOk(await script.post(`retry/${id}`), jobRef);
    expect(await script.untilEnd(id)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('restores the full number of attempts, with a new history', async () => {
    const throws: Step = { do: 'throw', message: 'at once', as: 'retry at once' };
    const { id, error } = await script.runsync({ steps: [throws] });
    expect(error?.attempts.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    await readOk(await script.post(`retry/${id}`), jobRef);
    const again = await script.untilStatus(id, 'FAILED');
    expect(again.error?.attempts.map(({ attempt }) => attempt)).toEqual([4, 5, 6]);
    expect(again.error?.attempts).toMatchObject(
      [1, 2, 3].map((runAttempt) => ({ run: 2, runAttempt })),
    );
  });

  it('drops earlier chunks', async () => {
    const steps: Step[] = [
      { do: 'yield', value: 'old', onlyInAttempt: 1 },
      { ...failure, onlyInAttempt: 1 },
      { do: 'yield', value: 'new' },
    ];
    const { id } = await script.runsync({ steps });
    expect((await script.stream(id, '?after=0')).chunks[0]?.output).toBe('old');
    await script.post(`retry/${id}`);
    expect((await script.untilStatus(id, 'COMPLETED')).output).toEqual(['new']);
    const outputs = (await script.stream(id, '?after=0')).chunks.map(({ output }) => output);
    expect(outputs).toEqual(['new']);
  });

  it.each(['IN_QUEUE', 'IN_PROGRESS', 'COMPLETED'] as const)(
    'is answered with 409 naming the status of a job that is %s',
    async (status) => {
      const id = await inStatus[status]();
      expect((await readProblem(await script.post(`retry/${id}`), 409)).detail).toContain(status);
      expect((await script.status(id)).status).toBe(status);
    },
  );

  it('returns 409 for a CANCELLED job', async () => {
    const id = await inStatus.CANCELLED();
    const problem = await readProblem(await unserved.post(`retry/${id}`), 409);
    expect(problem.detail).toContain('CANCELLED');
  });

  it('counts in health', async () => {
    const before = (await script.health()).jobs.retried;
    const id = await inStatus.FAILED();
    await script.post(`retry/${id}`);
    expect((await script.health()).jobs.retried).toBe(before + 1);
  });
});
