// Measures large payloads: the memory that the platform needs while one passes through.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Figure } from './measures.ts';
import { callPlatform, waitForCompleted } from './platform-calls.ts';
import {
  type Platform,
  readPeakRss,
  readRss,
  resetPeakRss,
  spawnWorker,
  startPlatform,
  stopProcess,
} from './processes.ts';

const PAYLOAD_BYTES = 10_000_000;
const ENDPOINT = 'payload';
/** Time in which garbage of the start is freed, ms. */
const IDLE_MS = 1_000;

/** Measures MB above idle memory, each passage on a new platform that has run a small job. */
export async function measurePayloads(): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const carrier of ['HTTP', 'gRPC'] as const) {
    const text = 'x'.repeat(PAYLOAD_BYTES);
    const input = await measurePassage(carrier, { text });
    const output = await measurePassage(carrier, { bytes: PAYLOAD_BYTES });
    figures.push(toFigure(`10 MB input over ${carrier}`, input.passed));
    figures.push(toFigure(`10 MB output over ${carrier}`, output.passed));
    figures.push(toFigure(`10 MB output read by a client, ${carrier}`, output.read));
  }
  figures.push(toFigure('10 MB output posted to a webhook', await measureWebhook()));
  return figures;
}

function toFigure(name: string, value: number): Figure {
  const floors = [{ name: 'the payload, MB', value: PAYLOAD_BYTES / 1_048_576 }];
  return { name: `${name}: platform's peak above idle`, unit: 'MB RSS', value, floors };
}

async function measurePassage(carrier: 'HTTP' | 'gRPC', input: object) {
  const platform = await startPlatform([ENDPOINT]);
  const { grpcUrl, pid, url, workerKey: key } = platform;
  const link = carrier === 'HTTP' ? url : grpcUrl;
  const worker = { url: link, key, endpoint: ENDPOINT, handler: 'handlers/payload.ts', slots: 1 };
  const process = spawnWorker(worker);
  try {
    await run(platform, { bytes: 1 });
    await waitForCompleted(platform, ENDPOINT, 1);
    const measure = async (act: () => Promise<unknown>) => {
      await sleep(IDLE_MS);
      const idle = await readRss(pid);
      await resetPeakRss(pid);
      await act();
      return (await readPeakRss(pid)) - idle;
    };
    let job = '';
    const passed = await measure(async () => {
      job = await run(platform, input);
      await waitForCompleted(platform, ENDPOINT, 2);
    });
    const read = await measure(() => callPlatform(platform, `/v2/${ENDPOINT}/status/${job}`));
    return { passed, read };
  } finally {
    await stopProcess(process);
    await platform.stop();
  }
}

/** Time from the submission until a receiver has read the whole record; a small job runs first. */
async function measureWebhook(): Promise<number> {
  const platform = await startPlatform([ENDPOINT], ['--allow-private-webhooks']);
  const { pid, url, workerKey: key } = platform;
  const process = spawnWorker({
    url,
    key,
    endpoint: ENDPOINT,
    handler: 'handlers/payload.ts',
    slots: 1,
  });
  const receiver = await startReceiver();
  const post = async (bytes: number) => {
    const received = receiver.next();
    await run(platform, { bytes }, { webhook: receiver.url });
    await received;
  };
  try {
    await post(1);
    await sleep(IDLE_MS);
    const idle = await readRss(pid);
    await resetPeakRss(pid);
    await post(PAYLOAD_BYTES);
    return (await readPeakRss(pid)) - idle;
  } finally {
    await stopProcess(process);
    await receiver.close();
    await platform.stop();
  }
}

async function startReceiver() {
  let received = Promise.withResolvers<void>();
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.end();
      received.resolve();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  return {
    url: `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}/`,
    next: () => {
      received = Promise.withResolvers<void>();
      return received.promise;
    },
    close: async () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function run(platform: Platform, input: object, more: object = {}): Promise<string> {
  const body = { input, ...more };
  const { id } = JSON.parse(await callPlatform(platform, `/v2/${ENDPOINT}/run`, body));
  return String(id);
}
