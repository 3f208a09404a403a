// Why a queued job waits, as a client sees it: real platform, real workers, processes all of them.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { JobRecord, WaitReason } from '../../src/wire/job/job-records.ts';
import type { DecisionRecord } from '../../src/wire/resources/scaling.ts';
import { fixture, PlatformProcess, Process } from '../support/processes.ts';
import { until } from '../support/until.ts';

const HOUR_MS = 3_600_000;

let platform: PlatformProcess;

beforeAll(async () => {
  platform = await PlatformProcess.start({
    endpoints: ['own', 'late'],
    args: ['--engine', 'process'],
  });
});

afterAll(() => platform.close());

async function read<T>(response: Response): Promise<T> {
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return JSON.parse(await response.text());
}

async function createEndpoint(handler: string, changes: object = {}): Promise<string> {
  const template = { name: 'worker', image: 'none', handler: fixture(handler), env: {} };
  const { id: templateId } = await read<{ id: string }>(
    await platform.post('/v1/templates', template),
  );
  const scaler = { type: 'REQUEST_COUNT', perWorker: 1 };
  const creation = { name: 'jobs', templateId, workersMax: 1, idleTimeout: 1, scaler, ...changes };
  const { id } = await read<{ id: string }>(await platform.post('/v1/endpoints', creation));
  return id;
}

async function submit(endpoint: string, body: object = { input: { n: 1, ms: 0 } }) {
  const { id } = await read<{ id: string }>(await platform.post(`/v2/${endpoint}/run`, body));
  return { endpoint, id };
}

type Ref = Awaited<ReturnType<typeof submit>>;

async function show({ endpoint, id }: Ref): Promise<JobRecord> {
  return read(await platform.fetch(`/v2/${endpoint}/status/${id}`));
}

/** Reads the record until the job waits for this reason. */
async function untilWaits(ref: Ref, code: WaitReason['code']): Promise<WaitReason> {
  return until(async () => {
    const { waitReason } = await show(ref);
    return waitReason?.code === code ? waitReason : undefined;
  });
}

async function remove(endpoint: string): Promise<void> {
  await platform.fetch(`/v1/endpoints/${endpoint}`, { method: 'DELETE' });
}

describe('a queued job says that it waits', () => {
  it('for a worker that nobody has started, in status, runsync and the CLI', async () => {
    const ref = await submit('own');
    const { waitReason } = await show(ref);
    const message = 'No worker is connected. Start one: millrace worker <handler> --endpoint own.';
    expect(waitReason).toEqual({ code: 'no_worker', message });

    const waited = await platform.post('/v2/own/runsync?wait=1000', { input: {} });
    expect(await read(waited)).toMatchObject({ status: 'IN_QUEUE', waitReason });

    const cli = new Process([
      ...['jobs', 'show', ref.id, '--endpoint', 'own'],
      ...['--url', platform.url, '--key', platform.adminKey],
    ]);
    const text = await cli.find(/("waitReason"[^}]*})/);
    expect(text).toContain('no_worker');
    await cli.end();
  });

  it('to the user of jobs submit --wait, until it starts', async () => {
    const cli = new Process([
      ...['jobs', 'submit', '--input', '{"n":1,"ms":0}', '--wait', '--endpoint', 'late'],
      ...['--url', platform.url, '--key', platform.adminKey],
    ]);
    expect(await cli.find(/(job \S+ waits \(no_worker\): .*)/)).toContain('Start one');
    platform.startWorker('late', 'tagged.ts');
    await cli.find(/("status": "COMPLETED")/);
  });

  it("not to RunPod's clients, whose records have no such member", async () => {
    const { id } = await submit('own');
    const record = await read(await platform.fetch(`/runpod/v2/own/status/${id}`));
    expect(record).not.toHaveProperty('waitReason');
  });

  it('for the end of its delay', async () => {
    const ref = await submit('own', { input: {}, policy: { delay: HOUR_MS } });
    const { waitReason } = await show(ref);
    expect(waitReason).toMatchObject({ code: 'delayed', until: expect.any(Number) });
  });

  it('for its next attempt, with the error of the last one', async () => {
    const endpoint = await createEndpoint('failing.ts', { maxAttempts: 10 });
    const { message } = await untilWaits(await submit(endpoint), 'backing_off');
    expect(message).toContain('failed with handler_error: this job fails.');
    await remove(endpoint);
  });

  it('for a worker that ends before it is ready, with its last error', async () => {
    const endpoint = await createEndpoint('unready.ts');
    const ref = await submit(endpoint);
    const { message } = await until(async () => {
      const reason = await untilWaits(ref, 'crashed');
      return reason.message.includes('in a row') ? reason : undefined;
    });
    expect(message).toContain('the model file is missing');
    // The scaler gives the same cause.
    const { decisions } = await read<{ decisions: DecisionRecord[] }>(
      await platform.fetch(`/v1/endpoints/${endpoint}/scaler?limit=1`),
    );
    expect(decisions[0]?.input.crashes.reason).toContain('the model file is missing');
    await remove(endpoint);
  });

  it('for a handler that cannot be loaded, with the error', async () => {
    const endpoint = await createEndpoint('broken.ts');
    const { message } = await untilWaits(await submit(endpoint), 'handler_not_loaded');
    expect(message).toContain('could not load the handler');
    expect(message).toContain('this handler is broken');
    await remove(endpoint);
  });

  it('for a worker that starts, and then behind the job that keeps all of workersMax busy', async () => {
    const endpoint = await createEndpoint('tagged.ts', { workersMax: 1 });
    const first = await submit(endpoint, { input: { n: 1, ms: HOUR_MS } });
    await untilWaits(first, 'worker_starting');
    await until(async () => ((await show(first)).status === 'IN_PROGRESS' ? true : undefined));
    const { message } = await untilWaits(await submit(endpoint), 'at_maximum');
    expect(message).toContain('workersMax is 1');
    await remove(endpoint);
  });

  it('at an endpoint that is switched off', async () => {
    const endpoint = await createEndpoint('tagged.ts', { workersMax: 0 });
    const { message } = await untilWaits(await submit(endpoint), 'at_maximum');
    expect(message).toContain('switched off');
  });
});
