// The public `runpod-sdk` against a real platform and its workers: every method of it, as its users
// call it, and what it makes of errors.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import runpodSdk from 'runpod-sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { WebhookReceiver } from '../../support/network/webhook-receiver.ts';
import { PlatformProcess } from '../../support/processes.ts';

const SCRIPT = 'script';
const SHOW = 'show';
/** Nobody works on its jobs. */
const IDLE = 'idle';

/** It prints the status of what it waits for. */
const printed = vi.hoisted(() => vi.spyOn(console, 'log').mockImplementation(() => undefined));

let platform: PlatformProcess;

beforeAll(async () => {
  const endpoints = [SCRIPT, SHOW, IDLE];
  platform = await PlatformProcess.start({ endpoints, args: ['--allow-private-webhooks'] });
  platform.startWorker(SCRIPT, 'api-script.ts', '--unsupervised');
  platform.startWorker(SHOW, 'api-job.ts', '--unsupervised');
  mkdirSync(join(platform.folder, 'marks'));
});

afterAll(async () => {
  printed.mockRestore();
  await platform.close();
});

function connect(endpoint: string, apiKey = platform.adminKey) {
  const found = runpodSdk(apiKey, { baseUrl: `${platform.url}/runpod/v2` }).endpoint(endpoint);
  if (!found) throw new Error('the SDK has no endpoint without an id');
  return found;
}

let marks = 0;

/** A file that a job waits for; `set` makes it. */
function makeMark() {
  const file = join(platform.folder, 'marks', String(++marks));
  return { file, set: () => writeFileSync(file, '') };
}

const yielded = (count: number, from = 0) =>
  Array.from({ length: count }, (_, n) => ({ do: 'yield', value: from + n }));

const thrown = (message: string) => ({ do: 'throw', as: 'non-retryable', message });

/** What its HTTP client throws. */
const httpError = z.object({
  message: z.string(),
  response: z.object({ status: z.int(), data: z.unknown() }),
});

async function readError(call: Promise<unknown>) {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  const { message, response } = httpError.parse(error);
  return { message, status: response.status, data: response.data };
}

describe('runSync', () => {
  it('answers with the output', async () => {
    const answer = await connect(SHOW).runSync({ input: { n: 1 } });

    expect(answer).toMatchObject({
      status: 'COMPLETED',
      output: { input: { n: 1 } },
      started: true,
      completed: true,
      succeeded: true,
      delayTime: expect.any(Number),
      executionTime: expect.any(Number),
    });
    expect(answer.id).toMatch(/^sync-/);
  });

  it('continues to poll when the job takes longer than its first wait', async () => {
    const mark = makeMark();
    const steps = [{ do: 'wait', file: mark.file }];
    const { fetch } = globalThis;
    const calls = vi.spyOn(globalThis, 'fetch').mockImplementation((url, init) => {
      if (String(url).includes('/status-sync/')) mark.set();
      return fetch(url, init);
    });
    const answer = await connect(SCRIPT).runSync({ input: { steps, answer: 'late' } }, 1_000);
    calls.mockRestore();

    expect(answer).toMatchObject({ status: 'COMPLETED', output: 'late', succeeded: true });
  });

  it('returns a failure with its error as text', async () => {
    const answer = await connect(SCRIPT).runSync({ input: { steps: [thrown('boom')] } });

    const { error } = z.object({ error: z.string() }).parse(answer);
    expect(answer).toMatchObject({ status: 'FAILED', completed: true, succeeded: false });
    expect(JSON.parse(error)).toMatchObject({
      error_type: 'NonRetryableError',
      error_message: 'boom',
      error_traceback: expect.stringContaining('api-script'),
    });
  });
});

describe('run, status and statusSync', () => {
  it('follow a job from the queue to its output', async () => {
    const mark = makeMark();
    const script = connect(SCRIPT);
    const steps = [
      { do: 'progress', value: 'begun' },
      { do: 'wait', file: mark.file },
    ];
    const { id, status } = await script.run({ input: { steps, answer: { n: 2 } } });
    expect(status).toBe('IN_QUEUE');

    await expect
      .poll(() => script.status(id))
      .toMatchObject({
        ...{ id, status: 'IN_PROGRESS', output: 'begun' },
        ...{ started: true, completed: false, succeeded: false },
      });
    const waiting = script.statusSync(id);
    mark.set();

    const end = { id, status: 'COMPLETED', output: { n: 2 }, completed: true, succeeded: true };
    expect(await waiting).toMatchObject(end);
    expect(await script.status(id)).toMatchObject(end);
  });

  it('pass the S3 configuration to the handler', async () => {
    const s3Config = {
      accessId: 'id',
      accessSecret: 'secret',
      bucketName: 'bucket',
      endpointUrl: 'https://s3.example.com',
      objectPath: 'made/here',
    };
    const policy = { executionTimeout: 60_000, ttl: 60_000, lowPriority: true };
    const webhookV2 = 'https://example.com/';
    const show = connect(SHOW);
    const { id } = await show.run({ input: { n: 1 }, s3Config, policy, webhookV2 });

    const { output } = z.object({ output: z.unknown() }).parse(await show.statusSync(id));
    expect(output).toEqual({ id, input: { n: 1 }, s3Config });
    const own = await platform.fetch(`/v2/${SHOW}/jobs`);
    expect(await own.text()).not.toContain('secret');
  });

  it('end a job that exceeds the timeout of its policy', async () => {
    const script = connect(SCRIPT);
    const steps = [{ do: 'wait', file: makeMark().file }];
    const policy = { executionTimeout: 1_000 };
    const { id } = await script.run({ input: { steps }, policy });

    expect(await script.statusSync(id)).toMatchObject({
      status: 'TIMED_OUT',
      error: expect.stringContaining('1000 ms'),
    });
  });

  it('post the record to the webhook in the same form', async () => {
    await using receiver = await WebhookReceiver.start();
    const script = connect(SCRIPT);
    const { id } = await script.run({
      input: { steps: [thrown('for the webhook')] },
      webhook: receiver.url,
    });

    const { body } = await receiver.receive(1);
    const { error, ...rest } = z.looseObject({ error: z.string() }).parse(JSON.parse(body));
    expect(rest).toMatchObject({ id, status: 'FAILED' });
    expect(JSON.parse(error)).toMatchObject({ error_message: 'for the webhook' });
  });
});

describe('stream', () => {
  async function readAll(endpoint: string, id: string) {
    const outputs: unknown[] = [];
    for await (const { output } of connect(endpoint).stream(id)) outputs.push(output);
    return outputs;
  }

  it('returns every chunk of a running job, to the end', async () => {
    const mark = makeMark();
    const steps = [...yielded(5), { do: 'wait', file: mark.file }, ...yielded(5, 5)];
    const { id } = await connect(SCRIPT).run({ input: { steps } });
    const outputs: unknown[] = [];
    for await (const { output } of connect(SCRIPT).stream(id)) {
      outputs.push(output);
      if (output === 4) mark.set();
    }

    expect(outputs).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it('returns every chunk of an ended job in several answers', async () => {
    // An answer holds 8 MB of chunks.
    const values = Array.from({ length: 10 }, (_, n) => String(n).repeat(900_000));
    const { id } = await connect(SCRIPT).run({
      input: { steps: values.map((value) => ({ do: 'yield', value })) },
    });
    expect(await connect(SCRIPT).statusSync(id)).toMatchObject({ status: 'COMPLETED' });

    expect(await readAll(SCRIPT, id)).toEqual(values);
  });

  it('returns the chunks before a failure', async () => {
    const steps = [...yielded(2), thrown('too late')];
    const { id } = await connect(SCRIPT).run({ input: { steps } });

    expect(await readAll(SCRIPT, id)).toEqual([0, 1]);
  });

  it('returns the output of a handler that does not yield as one chunk', async () => {
    const { id } = await connect(SCRIPT).run({ input: { steps: [], answer: 'whole' } });

    expect(await readAll(SCRIPT, id)).toEqual(['whole']);
  });
});

describe('cancel, purgeQueue and health', () => {
  it('cancel a running job and end its stream', async () => {
    const script = connect(SCRIPT);
    const steps = [...yielded(1), { do: 'wait', file: makeMark().file }];
    const { id } = await script.run({ input: { steps } });
    const stream = script.stream(id);
    expect(await stream.next()).toMatchObject({ value: { output: 0 } });

    expect(await script.cancel(id)).toEqual({ id, status: 'CANCELLED' });

    expect(await stream.next()).toMatchObject({ done: true });
    expect(await script.status(id)).toMatchObject({ status: 'CANCELLED', completed: true });
  });

  it('empty the queue and report its contents', async () => {
    const idle = connect(IDLE);
    const { id } = await idle.run({ input: {} });
    await idle.run({ input: {} });
    expect(await idle.health()).toEqual({
      jobs: { completed: 0, failed: 0, inProgress: 0, inQueue: 2, retried: 0 },
      workers: { idle: 0, initializing: 0, ready: 0, running: 0, throttled: 0, unhealthy: 0 },
    });

    expect(await idle.purgeQueue()).toEqual({ removed: 2, status: 'completed' });

    expect(await idle.health()).toMatchObject({ jobs: { inQueue: 0 } });
    expect(await idle.status(id)).toMatchObject({ status: 'CANCELLED' });
  });

  it('count idle workers', async () => {
    await connect(SHOW).runSync({ input: {} });

    expect(await connect(SHOW).health()).toMatchObject({ workers: { idle: 1, ready: 1 } });
  });
});

describe('an error', () => {
  it.each([
    ['an unknown key', 401, () => connect(SHOW, 'wrong').health()],
    ['an unknown endpoint', 404, () => connect('nowhere').run({ input: {} })],
    ['an unknown job', 404, () => connect(SHOW).status('nothing')],
    ['an invalid request', 400, () => connect(SHOW).run({ input: undefined })],
    [
      'a webhook with a forbidden URL',
      400,
      () => connect(SHOW).run({ input: {}, webhook: 'ftp://example.com' }),
    ],
  ])('is thrown for %s with status and text', async (_name, status, call) => {
    expect(await readError(call())).toEqual({
      message: `Request failed with status code ${status}`,
      status,
      data: { error: expect.any(String) },
    });
  });

  it('is thrown by cancel for a job with another terminal status', async () => {
    const { id } = await connect(SHOW).runSync({ input: {} });

    const { data, status } = await readError(connect(SHOW).cancel(id));
    expect(status).toBe(400);
    expect(data).toEqual({ error: expect.stringContaining('COMPLETED') });
  });
});
