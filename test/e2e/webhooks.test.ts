// Webhooks between real processes: a platform that is killed or ended in the middle, and receivers
// that are slow, dead or where nothing may be sent.
import { join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { jobDetails } from '../../src/wire/job/job-records.ts';
import { verifyPosted, WebhookReceiver } from '../support/network/webhook-receiver.ts';
import { PlatformProcess, Process } from '../support/processes.ts';
import { until } from '../support/until.ts';

const ECHO = '../../../handlers/echo.ts';
const jobRef = z.object({ id: z.string() });

/** Of each platform: metrics tell the tests apart by their endpoints. */
const ENDPOINTS = ['echo-1', 'echo-2', 'echo-3'];

let platform: PlatformProcess;
let unused: string[];
let endpoint: string;
let named: string;

/** @returns what ends it */
async function startPlatform(...args: string[]): Promise<() => Promise<void>> {
  unused = [...ENDPOINTS];
  const started = await PlatformProcess.start({ endpoints: ENDPOINTS, args });
  platform = started;
  return () => started.close();
}

beforeEach(() => {
  endpoint = unused.shift() ?? '';
  named = `endpoint="${endpoint}"`;
  platform.startWorker(endpoint, ECHO, '--unsupervised');
});

afterEach(() => platform.killWorkers());

async function submit(webhook: string): Promise<string> {
  const answer = await platform.post(`/v2/${endpoint}/run`, { input: { n: 1 }, webhook });
  return jobRef.parse(await answer.json()).id;
}

/** As an operator asks for it. */
async function readSecret(): Promise<string> {
  const data = join(platform.folder, 'data');
  const command = new Process(['endpoints', 'webhook-secret', endpoint, '--data', data]);
  expect(await command.exited).toBe(0);
  return command.output.trim();
}

async function readStatus(id: string): Promise<unknown> {
  return (await platform.fetch(`/v2/${endpoint}/status/${id}`)).json();
}

/** Resolves when the metrics have such a line. */
async function waitForMetric(line: string): Promise<void> {
  await until(
    async () => {
      const metrics = await (await platform.fetch('/metrics')).text();
      return metrics.split('\n').includes(line);
    },
    { everyMs: 50 },
  );
}

describe('a webhook', () => {
  beforeAll(() => startPlatform('--allow-private-webhooks'));

  it('contains the record that status returns, signed for its endpoint', async () => {
    await using receiver = await WebhookReceiver.start();
    const id = await submit(receiver.url);

    const posted = await receiver.receive(1);

    expect(posted).toMatchObject({ path: '/done', endpoint, attempt: 1 });
    const record = await verifyPosted(posted, await readSecret());
    expect(record).toMatchObject({ id, status: 'COMPLETED', output: { n: 1 } });
    expect(record).toEqual(await readStatus(id));
    await waitForMetric(`millrace_webhook_attempts_total{${named},result="2xx"} 1`);
    await waitForMetric(`millrace_webhooks_waiting{${named}} 0`);
  });

  it('is sent again after an error, with the same ID', async () => {
    await using receiver = await WebhookReceiver.start();
    receiver.answer((response) => response.writeHead(500).end());
    const id = await submit(receiver.url);
    const first = await receiver.receive(1);
    await waitForMetric(`millrace_webhooks_waiting{${named}} 1`);
    await waitForMetric(`millrace_webhook_attempts_total{${named},result="5xx"} 1`);
    receiver.answer((response) => response.end());

    const second = await receiver.receive(2);

    expect(second).toMatchObject({ attempt: 2, delivery: first.delivery, body: first.body });
    await waitForMetric(`millrace_webhooks_waiting{${named}} 0`);
    expect(receiver.posted).toHaveLength(2);
    const answered = await platform.fetch(`/v2/${endpoint}/jobs/${id}?input=false`);
    const { timeline } = jobDetails.parse(await answered.json());
    expect(timeline?.slice(-3)).toMatchObject([
      { event: 'ended', status: 'COMPLETED' },
      { event: 'webhook_failed', attempt: 1, message: 'the receiver answered 500' },
      { event: 'webhook_delivered', attempt: 2 },
    ]);
    const shown = new Process([
      ...['jobs', 'show', id, '--endpoint', endpoint],
      ...['--url', platform.url, '--key', platform.adminKey],
    ]);
    expect(await shown.exited).toBe(0);
    expect(shown.output).toContain('webhook_delivered');
  });

  it('arrives while another receiver hangs', async () => {
    await using dead = await WebhookReceiver.start();
    await using alive = await WebhookReceiver.start();
    dead.answer(() => {});
    for (let job = 0; job < 8; job++) await submit(dead.url);
    // A receiver that has accepted nothing yet gets one attempt at a time.
    await dead.receive(1);

    const id = await submit(alive.url);

    expect(JSON.parse((await alive.receive(1)).body)).toMatchObject({ id });
    expect(dead.posted).toHaveLength(1);
  });
});

describe('a webhook of a stopping platform', () => {
  // The job itself is gone by the next start: its record is kept apart.
  beforeAll(() => startPlatform('--allow-private-webhooks', '--retain-run-ms', '1'));

  it('is sent again at the next start if the platform was killed meanwhile', async () => {
    await using receiver = await WebhookReceiver.start();
    receiver.answer(() => {});
    const id = await submit(receiver.url);
    const first = await receiver.receive(1);

    await platform.kill();
    receiver.answer((response) => response.end());
    await platform.restart();
    const second = await receiver.receive(2);

    expect(second).toMatchObject({ delivery: first.delivery, body: first.body, attempt: 1 });
    const record = await verifyPosted(second, await readSecret());
    expect(record).toMatchObject({ id, status: 'COMPLETED', output: { n: 1 } });
    expect((await platform.fetch(`/v2/${endpoint}/status/${id}`)).status).toBe(404);
    await waitForMetric(`millrace_webhooks_waiting{${named}} 0`);
    expect(receiver.posted).toHaveLength(2);
  });

  it('does not delay the exit, and is sent at the next start', async () => {
    await using receiver = await WebhookReceiver.start();
    receiver.answer(() => {});
    await submit(receiver.url);
    const first = await receiver.receive(1);

    expect(await platform.process.end('SIGTERM')).toBe(0);
    receiver.answer((response) => response.end());
    await platform.restart();

    expect(await receiver.receive(2)).toMatchObject({ delivery: first.delivery, attempt: 1 });
  });
});

describe('without --allow-private-webhooks', () => {
  beforeAll(() => startPlatform());

  it('refuses a webhook to an address of this machine', async () => {
    const webhook = 'http://127.0.0.1:9/';
    const answer = await platform.post(`/v2/${endpoint}/run`, { input: {}, webhook });
    expect(answer.status).toBe(422);
    expect(await answer.json()).toMatchObject({
      errors: [expect.stringMatching(/^webhook: .*127\.0\.0\.1.*loopback/)],
    });
  });

  it('sends nothing to a name that resolves to this machine', async () => {
    await using receiver = await WebhookReceiver.start();
    await submit(`http://localhost:${receiver.port}/`);
    await waitForMetric(`millrace_webhook_attempts_total{${named},result="refused"} 1`);
    expect(receiver.connections).toBe(0);
  });
});
