// runsync: what it answers when the job ends in time, and when it does not.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { jobRecord, readOk, readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import { Gate } from '../../support/network/gate.ts';
import { openRequest } from '../../support/network/raw-request.ts';
import { PlatformProcess } from '../../support/processes.ts';

let platform: PlatformProcess;
let served: EndpointCaller;
let unserved: EndpointCaller;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ['served', 'unserved', 'cancelled'] });
  served = new EndpointCaller(platform, 'served');
  unserved = new EndpointCaller(platform, 'unserved');
  platform.startWorker('served', 'api-script.ts', '--unsupervised');
});
afterAll(() => platform.close());

describe('runsync of a job that ends in time', () => {
  it('answers with the whole record', async () => {
    const record = await served.runsync({ steps: [], answer: { n: 1 } });
    expect(record).toMatchObject({ status: 'COMPLETED', output: { n: 1 }, attempt: 1 });
    expect(await served.status(record.id)).toEqual(record);
  });

  it('answers with 200 and the error if the job is FAILED', async () => {
    const steps = [{ do: 'throw', message: 'no use', as: 'non-retryable' }];
    const record = await served.runsync({ steps });
    expect(record).toMatchObject({ status: 'FAILED', error: { message: 'no use' } });
    expect(record).not.toHaveProperty('output');
  });

  it('answers with 200 if the job is cancelled meanwhile', async () => {
    const cancelled = new EndpointCaller(platform, 'cancelled');
    const waiting = cancelled.runsync({});
    const id = await cancelled.newest('IN_QUEUE');
    await cancelled.post(`cancel/${id}`);
    expect(await waiting).toMatchObject({ id, status: 'CANCELLED' });
  });

  it('returns the yielded values of a generator as one output', async () => {
    const steps = ['a', 'b'].map((value) => ({ do: 'yield', value }));
    expect((await served.runsync({ steps })).output).toEqual(['a', 'b']);
  });
});

describe('runsync whose wait ends before the job', () => {
  it('answers with 200 and an IN_QUEUE job', async () => {
    const answer = await unserved.post('runsync?wait=1000', { input: {} });
    const record = await readOk(answer, jobRecord);
    expect(record).toMatchObject({ status: 'IN_QUEUE', attempt: 0, executionTime: 0 });
  });

  it('answers with 200 and an IN_PROGRESS job, which continues', async () => {
    const gate = new Gate(platform.folder);
    const input = { steps: [{ do: 'wait', file: gate.path }], answer: 'after the wait' };
    const record = await readOk(await served.post('runsync?wait=1000', { input }), jobRecord);
    expect(record.status).toBe('IN_PROGRESS');
    expect(record).not.toHaveProperty('output');
    gate.open();
    expect((await served.untilEnd(record.id)).output).toBe('after the wait');
  });
});

describe('the wait of runsync', () => {
  it.each(['999', '300001', '0', '-1', '1000.5', '1e3', 'abc', '', '1000&wait=2000'])(
    'returns 422 with its range: wait=%s',
    async (wait) => {
      const answer = await served.post(`runsync?wait=${wait}`, { input: { steps: [] } });
      const { errors } = await readProblem(answer, 422);
      expect(errors).toEqual([expect.stringMatching(/^wait: .*1000.*300000/)]);
    },
  );

  it.each(['1000', '300000'])('may be %s, and ends with the job', async (wait) => {
    const answer = await served.post(`runsync?wait=${wait}`, { input: { steps: [] } });
    expect((await readOk(answer, jobRecord)).status).toBe('COMPLETED');
  });

  it('creates no job if it is refused', async () => {
    const before = await unserved.health();
    await readProblem(await unserved.post('runsync?wait=999', { input: {} }), 422);
    expect(await unserved.health()).toEqual(before);
  });
});

describe('a client that disconnects while it waits', () => {
  it('does not affect a running job', async () => {
    const started = new Gate(platform.folder);
    const gate = new Gate(platform.folder);
    const steps = [
      { do: 'note', file: started.path, text: 'started' },
      { do: 'wait', file: gate.path },
    ];
    const { answer, request } = openRequest(platform, '/v2/served/runsync');
    const lost = answer.catch(() => 'no answer');
    request.end(JSON.stringify({ input: { steps } }));
    await started.untilLines(1);
    const id = await served.newest('IN_PROGRESS');
    request.destroy();
    expect(await lost).toBe('no answer');
    gate.open();
    expect((await served.untilEnd(id)).status).toBe('COMPLETED');
  });
});
