// Two workers under one supervisor, as probes and Prometheus see them on its port. The GPUs are made up
// by a stand-in for nvidia-smi; all processes are real.
import { delimiter } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { HttpGate } from '../../support/network/http-gate.ts';
import { sayingOf, standInFolder } from '../../support/nvidia-smi/stand-in.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { until } from '../../support/until.ts';
import { Workplace } from './command-run.ts';

/** Each job waits in its second half until there is a file; the setup fails where one says so. */
const handler = `import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
const until = async (name) => {
  while (!existsSync(name)) await sleep(5);
};
export async function setup({ devices }) {
  if (existsSync('broken-' + devices[0].index)) throw new Error('no model');
}
export default async function* ({ input }, { devices }) {
  yield devices[0].index;
  console.log('holding');
  await until(input.gate);
  yield 'end';
}`;

const PORT = /"port":(\d+),"msg":"health port listening"/;
const UUIDS = [
  'GPU-a1000000-51c2-4e0b-9d67-3f8842b0c1d0',
  'GPU-a1000001-51c2-4e0b-9d67-3f8842b0c1d1',
];
const WORKERS = ['gpu-0', 'gpu-1'];
const TERMS = ['--lease-ms', '1500', '--renew-every-ms', '300', '--take-wait-ms', '300'];
const readiness = z.looseObject({
  ready: z.boolean(),
  reason: z.string().exactOptional(),
  workers: z.array(
    z.looseObject({
      state: z.string(),
      pid: z.number().exactOptional(),
      health: z.looseObject({ running: z.number() }).exactOptional(),
    }),
  ),
});
const jobRef = z.object({ id: z.string() });
const seenRecord = z.looseObject({ status: z.string() });

/** The platform serves all tests: each has an endpoint of its own. */
const ENDPOINTS = Array.from({ length: 6 }, (_, n) => `halves-${n}`);
const unused = [...ENDPOINTS];

let place: Workplace;
let platform: PlatformProcess;
let gate: HttpGate;
let endpoint: string;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: ENDPOINTS, args: TERMS });
});

afterAll(() => platform.close());

beforeEach(async () => {
  place = new Workplace();
  place.write('halves.mjs', handler);
  endpoint = unused.shift() ?? '';
  gate = await HttpGate.start(platform.url);
});

afterEach(async () => {
  await place.close();
  await gate.close();
});

/** Resolves when the port is there; the workers may still be starting. */
async function startWorkers(...more: string[]) {
  const own = ['--devices', '0,1', '--worker-id', 'gpu', '--health-port', '0'];
  const run = place.start(['worker', 'halves.mjs', ...own, ...more], {
    env: {
      ...sayingOf('eight-a100'),
      PATH: [standInFolder, process.env['PATH']].join(delimiter),
      MILLRACE_URL: gate.url,
      MILLRACE_ENDPOINT: endpoint,
      MILLRACE_KEY: platform.workerKey,
    },
  });
  const port = await run.until('stderr', PORT);
  return { run, url: `http://127.0.0.1:${port}` };
}

async function ask(url: string) {
  const answer = await fetch(`${url}/readyz`);
  return { status: answer.status, ...readiness.parse(await answer.json()) };
}

/** What /readyz answers once its reason is this; the time limit of the test ends the wait. */
async function waitForReason(url: string, reason: RegExp | undefined) {
  return until(
    async () => {
      const seen = await ask(url);
      return (reason ? reason.test(seen.reason ?? '') : seen.ready) && seen;
    },
    { everyMs: 50 },
  );
}

async function submit(input: object): Promise<string> {
  return jobRef.parse(await (await platform.post(`/v2/${endpoint}/run`, { input })).json()).id;
}

async function waitForEnd(id: string): Promise<void> {
  await until(
    async () => {
      const answer = await platform.fetch(`/v2/${endpoint}/status/${id}`);
      return seenRecord.parse(await answer.json()).status === 'COMPLETED';
    },
    { everyMs: 50 },
  );
}

/** A job in each worker; both have begun. */
async function occupyBoth(url: string): Promise<string[]> {
  const ids = [await submit({ gate: 'go' }), await submit({ gate: 'go' })];
  return until(
    async () => {
      const { workers } = await ask(url);
      return workers.every(({ health }) => health?.running === 1) && ids;
    },
    { everyMs: 50 },
  );
}

async function readMetrics(url: string): Promise<Map<string, number>> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const at = line.lastIndexOf(' ');
      return [line.slice(0, at), Number(line.slice(at + 1))];
    }),
  );
}

function describeValue(value: number | undefined, wanted: 'any' | 'some') {
  return value === undefined || (wanted === 'some' && value <= 0) ? value : wanted;
}

describe('the metrics of two workers', () => {
  it('describe each worker and each device', async () => {
    const { url } = await startWorkers();
    await waitForReason(url, undefined);
    const ids = await occupyBoth(url);
    gate.refuseAll({ status: 503 });
    await waitForReason(url, /lease renewals failed for too long/);
    gate.refuseAll(undefined);
    await waitForReason(url, undefined);
    place.write('go', '');
    for (const id of ids) await waitForEnd(id);
    const metrics = await readMetrics(url);
    const expectSeries = (name: string, labels: string, wanted: number | 'any' | 'some') => {
      const value = metrics.get(`${name}{${labels}}`);
      const told = typeof wanted === 'number' ? value : describeValue(value, wanted);
      expect.soft(told, `${name}{${labels}}`).toBe(wanted);
    };
    for (const worker of WORKERS) {
      const own = `worker="${worker}"`;
      const completed = `outcome="completed",${own}`;
      expectSeries('millrace_worker_up', own, 1);
      expectSeries('millrace_worker_restarts_total', own, 0);
      expectSeries('millrace_worker_attempts_ended_total', completed, 1);
      expectSeries('millrace_worker_attempts_ended_total', `outcome="failed",${own}`, 0);
      expectSeries('millrace_worker_queue_wait_seconds_count', own, 1);
      expectSeries('millrace_worker_execution_seconds_count', completed, 1);
      expectSeries('millrace_worker_first_chunk_seconds_count', own, 1);
      expectSeries('millrace_worker_chunk_gap_seconds_count', own, 1);
      expectSeries('millrace_worker_chunk_bytes_count', own, 2);
      expectSeries('millrace_worker_outbox_reports', own, 'any');
      expectSeries('millrace_worker_lease_renewals_total', own, 'some');
      expectSeries('millrace_worker_reconnects_total', `verb="renew",${own}`, 'some');
      expectSeries('nodejs_eventloop_lag_seconds', own, 'any');
    }
    for (const [device, uuid] of UUIDS.entries()) {
      const labels = `device="${device}",uuid="${uuid}",name="NVIDIA A100-SXM4-80GB"`;
      expectSeries('millrace_device_utilization_ratio', labels, 'any');
      expectSeries('millrace_device_memory_used_bytes', labels, 'any');
      expectSeries('millrace_device_memory_total_bytes', labels, 80 * 2 ** 30);
    }
  });
});

describe('/readyz of two workers', () => {
  it('names the worker that cannot start, with the reason, while the other runs jobs', async () => {
    place.write('broken-1', '');
    const { url } = await startWorkers('--start-attempts', '1');
    const seen = await waitForReason(url, /no model/);
    expect(seen).toMatchObject({
      status: 503,
      reason: expect.stringMatching(/^gpu-1: .*no model/),
    });
    await waitForState(url, ['ready', 'given_up']);
    const id = await submit({ gate: 'broken-1' });
    await waitForEnd(id);
  });

  it('reports an unreachable platform, at the start and later', async () => {
    gate.refuseAll({ status: 503 });
    const { url } = await startWorkers();
    const reason = /^gpu-\d: the platform is unavailable: .*503/;
    expect(await waitForReason(url, reason)).toMatchObject({ status: 503 });
    gate.refuseAll(undefined);
    expect(await waitForReason(url, undefined)).toMatchObject({ status: 200 });
    gate.refuseAll({ status: 503 });
    const later = await waitForReason(url, /^gpu-\d: lease renewals failed for too long$/);
    expect(later).toMatchObject({ status: 503 });
  });

  it('reports a worker process that does not respond', async () => {
    const { url } = await startWorkers();
    const { workers } = await waitForReason(url, undefined);
    const stopped = workers[1]?.pid ?? 0;
    process.kill(stopped, 'SIGSTOP');
    const seen = await waitForReason(url, /^gpu-1: the worker process does not respond$/);
    expect(seen).toMatchObject({
      status: 503,
      workers: [{ state: 'ready' }, { state: 'not_ready' }],
    });
    process.kill(stopped, 'SIGCONT');
    expect(await waitForReason(url, undefined)).toMatchObject({ status: 200 });
  });
});

async function waitForState(url: string, states: string[]): Promise<void> {
  await until(
    async () => {
      const { workers } = await ask(url);
      return workers.map(({ state }) => state).join() === states.join();
    },
    { everyMs: 50 },
  );
}
