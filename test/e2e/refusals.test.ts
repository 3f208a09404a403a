// A platform that is there and does not want to be asked: a real worker process under its supervisor,
// and an HTTP server that answers with 429, 503 and 401.
import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { silentLog } from '../../src/base/log.ts';
import { createHttpLink } from '../../src/transport/http-link.ts';
import type { WorkerVerb } from '../../src/wire/routes/routes.ts';
import { ThreadExecutor } from '../../src/worker/execution/thread-executor.ts';
import { createWorker } from '../../src/worker/worker.ts';
import { HttpGate } from '../support/network/http-gate.ts';
import { fixture, PlatformProcess, type Process } from '../support/processes.ts';
import { until } from '../support/until.ts';
import { cpu } from '../support/workers/leases.ts';

/** The platform serves all tests: each has an endpoint of its own. */
const ENDPOINTS = Array.from({ length: 8 }, (_, n) => `script-${n}`);
const unused = [...ENDPOINTS];
const PORT = /"port":(\d+),"msg":"health port listening"/;
/** Of the gate, s: far longer than any wait of a worker that is told nothing. */
const RETRY_AFTER = 1;
const jobRef = z.object({ id: z.string() });
const seenRecord = z.looseObject({ status: z.string(), attempt: z.number() });
const readiness = z.looseObject({ ready: z.boolean(), reason: z.string().exactOptional() });

let platform: PlatformProcess;
let gate: HttpGate;
let endpoint: string;

beforeAll(async () => {
  const terms = ['--take-wait-ms', '300', '--renew-every-ms', '300', '--lease-ms', '15000'];
  platform = await PlatformProcess.start({ endpoints: ENDPOINTS, args: terms });
});

afterAll(() => platform.close());

beforeEach(async () => {
  endpoint = unused.shift() ?? '';
  gate = await HttpGate.start(platform.url);
});

afterEach(async () => {
  await platform.killWorkers();
  await gate.close();
});

function startWorker(...args: string[]): Process {
  const where = ['--url', gate.url, '--health-port', '0'];
  return platform.startWorker(endpoint, 'api-script.ts', ...where, ...args);
}

async function submit(steps: unknown[], answer: unknown = 'done'): Promise<string> {
  const reply = await platform.post(`/v2/${endpoint}/run`, { input: { steps, answer } });
  return jobRef.parse(await reply.json()).id;
}

async function readRecord(id: string) {
  const answer = await platform.fetch(`/v2/${endpoint}/status/${id}`);
  return seenRecord.parse(await answer.json());
}

async function waitFor(id: string, status: string) {
  return until(
    async () => {
      const record = await readRecord(id);
      return record.status === status && record;
    },
    { everyMs: 50 },
  );
}

/** A job that has begun and goes on until `release`. */
async function startHolding() {
  const [begun = '', go = ''] = ['begun', 'go'].map((name) =>
    join(platform.folder, `${endpoint}-${name}`),
  );
  const id = await submit([
    { do: 'note', file: begun, text: 'run' },
    { do: 'wait', file: go },
  ]);
  await until(() => existsSync(begun));
  return { id, release: () => writeFile(go, '') };
}

describe('a worker that gets Retry-After', () => {
  it.each([429, 503])(
    'waits that long after status %i before it repeats a call',
    async (status) => {
      const refused: WorkerVerb[] = ['hello', 'take', 'renew', 'report'];
      for (const verb of refused) gate.refuseNext(verb, { status, retryAfter: RETRY_AFTER });
      const worker = startWorker();
      const id = await submit([]);
      for (const verb of refused) {
        const [, repetition] = await gate.waitForRepetition(verb, status);
        expect(repetition.isEarly, verb).toBe(false);
      }
      expect(await waitFor(id, 'COMPLETED')).toMatchObject({ attempt: 1 });
      expect(await worker.end()).toBe(0);
    },
  );
});

describe('a worker that is stopped while the platform refuses its outcome', () => {
  it('exits with 1, and its next process with 0 after delivery', async () => {
    const state = ['--state-dir', join(platform.folder, `${endpoint}-state`), '--worker-id', 'w1'];
    const worker = startWorker(...state, '--drain-ms', '100');
    const job = await startHolding();
    gate.refuseAll({ status: 503 });
    await job.release();
    await worker.find(/platform unreachable, retrying/);
    expect(await worker.end()).toBe(1);
    expect(worker.output).toContain('delivering outcomes failed');
    gate.refuseAll(undefined);
    const next = startWorker(...state);
    expect(await waitFor(job.id, 'COMPLETED')).toMatchObject({ attempt: 1 });
    expect(await next.end()).toBe(0);
  });
});

describe('a worker whose key is refused', () => {
  it('stops taking jobs with a log line, and running jobs continue', async () => {
    const worker = startWorker();
    const url = `http://127.0.0.1:${await worker.find(PORT)}/readyz`;
    await worker.find(/worker ready/);
    const job = await startHolding();
    gate.refuseAll({ status: 401 });
    await worker.find(/the platform refuses the key/);
    const answer = await fetch(url);
    expect(answer.status).toBe(503);
    const { reason } = readiness.parse(await answer.json());
    expect(reason).toMatch(/^the platform refuses the key: /);
    const takes = () => gate.calls.filter(({ verb }) => verb === 'take').length;
    const before = takes();
    await job.release();
    await until(async () => (await (await fetch(url)).text()).includes('"running":0'));
    expect(takes()).toBe(before);
    expect((await readRecord(job.id)).status).toBe('IN_PROGRESS');
  });

  it('continues when the key is accepted again', async () => {
    const link = createHttpLink({
      ...{ url: gate.url, endpointId: endpoint, key: platform.workerKey, log: silentLog },
    });
    const handlerPath = fixture('api-script.ts');
    const worker = createWorker({
      link,
      executor: new ThreadExecutor({ handlerPath, devices: [cpu] }),
      workerId: 'w1',
      incarnation: 1,
      version: '0',
      devices: [cpu],
      refusedRetryMs: 50,
    });
    try {
      await worker.start();
      const job = await startHolding();
      gate.refuseAll({ status: 401 });
      await until(() => !worker.health().ready);
      await job.release();
      await until(() => worker.health().running === 0);
      const next = await submit([]);
      gate.refuseAll(undefined);
      expect(await waitFor(job.id, 'COMPLETED')).toMatchObject({ attempt: 1 });
      expect(await waitFor(next, 'COMPLETED')).toMatchObject({ attempt: 1 });
      await until(() => worker.health().ready);
      expect((await worker.stop()).delivered).toBe(true);
    } finally {
      await worker.stop();
      await link.close();
    }
  });
});
