// Webhooks between real processes: a platform that is killed or ended in the middle, and receivers
// that are slow, dead or where nothing may be sent.
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { verifyPosted, WebhookReceiver } from '../support/network/webhook-receiver.ts';
import { PlatformProcess, Process } from '../support/processes.ts';

const ENDPOINT = 'echo';
const ECHO = '../../../handlers/echo.ts';
const jobRef = z.object({ id: z.string() });

let platform: PlatformProcess | undefined;

afterEach(async () => {
  await platform?.close();
  platform = undefined;
});

async function startPlatform(args: string[] = ['--allow-private-webhooks']) {
  platform = await PlatformProcess.start({ endpoints: [ENDPOINT], args });
  platform.startWorker(ENDPOINT, ECHO);
  return platform;
}

async function submit(platform: PlatformProcess, webhook: string): Promise<string> {
  const answer = await platform.post(`/v2/${ENDPOINT}/run`, { input: { n: 1 }, webhook });
  return jobRef.parse(await answer.json()).id;
}

/** As an operator asks for it. */
async function readSecret(platform: PlatformProcess): Promise<string> {
  const data = join(platform.folder, 'data');
  const command = new Process(['endpoints', 'webhook-secret', ENDPOINT, '--data', data]);
  expect(await command.exited).toBe(0);
  return command.output.trim();
}

async function readStatus(platform: PlatformProcess, id: string): Promise<unknown> {
  return (await platform.fetch(`/v2/${ENDPOINT}/status/${id}`)).json();
}

/** Resolves when the metrics have such a line. */
async function waitForMetric(platform: PlatformProcess, line: string): Promise<void> {
  for (;;) {
    const metrics = await (await platform.fetch('/metrics')).text();
    if (metrics.split('\n').includes(line)) return;
    await sleep(20);
  }
}

const named = `endpoint="${ENDPOINT}"`;

describe('a webhook', () => {
  it('brings the record that status answers, signed for its endpoint', async () => {
    const platform = await startPlatform();
    await using receiver = await WebhookReceiver.start();
    const id = await submit(platform, receiver.url);

    const posted = await receiver.receive(1);

    expect(posted).toMatchObject({ path: '/done', endpoint: ENDPOINT, attempt: 1 });
    const record = await verifyPosted(posted, await readSecret(platform));
    expect(record).toMatchObject({ id, status: 'COMPLETED', output: { n: 1 } });
    expect(record).toEqual(await readStatus(platform, id));
    await waitForMetric(platform, `millrace_webhook_attempts_total{${named},result="2xx"} 1`);
    await waitForMetric(platform, `millrace_webhooks_waiting{${named}} 0`);
  });

  it('is sent again after an error, with the same id', async () => {
    const platform = await startPlatform();
    await using receiver = await WebhookReceiver.start();
    receiver.answer((response) => response.writeHead(500).end());
    await submit(platform, receiver.url);
    const first = await receiver.receive(1);
    await waitForMetric(platform, `millrace_webhooks_waiting{${named}} 1`);
    receiver.answer((response) => response.end());

    const second = await receiver.receive(2);

    expect(second).toMatchObject({ attempt: 2, delivery: first.delivery, body: first.body });
    await waitForMetric(platform, `millrace_webhooks_waiting{${named}} 0`);
    expect(receiver.posted).toHaveLength(2);
  });

  it('is sent by the next start of a platform that was killed while it was sent', async () => {
    // The job itself is gone by then: its record is kept apart.
    const platform = await startPlatform(['--allow-private-webhooks', '--retain-run-ms', '1']);
    await using receiver = await WebhookReceiver.start();
    receiver.answer(() => {});
    const id = await submit(platform, receiver.url);
    const first = await receiver.receive(1);

    await platform.kill();
    receiver.answer((response) => response.end());
    await platform.restart();
    const second = await receiver.receive(2);

    expect(second).toMatchObject({ delivery: first.delivery, body: first.body, attempt: 1 });
    const record = await verifyPosted(second, await readSecret(platform));
    expect(record).toMatchObject({ id, status: 'COMPLETED', output: { n: 1 } });
    expect((await platform.fetch(`/v2/${ENDPOINT}/status/${id}`)).status).toBe(404);
    await waitForMetric(platform, `millrace_webhooks_waiting{${named}} 0`);
    expect(receiver.posted).toHaveLength(2);
  });

  it('does not hold up the end of the platform, and is sent by the next start', async () => {
    const platform = await startPlatform();
    await using receiver = await WebhookReceiver.start();
    receiver.answer(() => {});
    await submit(platform, receiver.url);
    const first = await receiver.receive(1);

    expect(await platform.process.end('SIGTERM')).toBe(0);
    receiver.answer((response) => response.end());
    await platform.restart();

    expect(await receiver.receive(2)).toMatchObject({ delivery: first.delivery, attempt: 1 });
  });

  it('arrives while another receiver hangs', async () => {
    const platform = await startPlatform();
    await using dead = await WebhookReceiver.start();
    await using alive = await WebhookReceiver.start();
    dead.answer(() => {});
    for (let job = 0; job < 8; job++) await submit(platform, dead.url);
    await dead.receive(4);

    const id = await submit(platform, alive.url);

    expect(JSON.parse((await alive.receive(1)).body)).toMatchObject({ id });
    expect(dead.posted).toHaveLength(4);
  });
});

describe('without --allow-private-webhooks', () => {
  it('a webhook to an address of this machine is refused at once', async () => {
    const platform = await startPlatform([]);
    const webhook = 'http://127.0.0.1:9/';
    const answer = await platform.post(`/v2/${ENDPOINT}/run`, { input: {}, webhook });
    expect(answer.status).toBe(422);
    expect(await answer.json()).toMatchObject({
      errors: ['webhook: 127.0.0.1 is not an allowed address (loopback)'],
    });
  });

  it('nothing is sent to a name that leads to this machine', async () => {
    const platform = await startPlatform([]);
    await using receiver = await WebhookReceiver.start();
    await submit(platform, `http://localhost:${receiver.port}/`);
    await waitForMetric(platform, `millrace_webhook_attempts_total{${named},result="refused"} 1`);
    expect(receiver.connections).toBe(0);
  });
});
