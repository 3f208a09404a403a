// The bill and budgets of a real platform: it is killed while containers start and end, and it refuses to start more
// once a budget is used up.
import { readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { findRun } from '../../src/engine/process/runs.ts';
import type { JobRecord } from '../../src/wire/job/job.ts';
import type { BillingPage } from '../../src/wire/resources/billing.ts';
import type { BudgetRecord } from '../../src/wire/resources/budget.ts';
import type { PodRecord } from '../../src/wire/resources/pod.ts';
import { fixture, PlatformProcess } from '../support/processes.ts';
import { createRandom } from '../support/random.ts';

/** USD an hour of one vCPU: a run of a second costs more than a cent. */
const VCPU_PRICE = 360;
const CPU = { id: 'cpu', vcpuCount: 2, memory: 1 };
const ROUNDS = 2;
/** Ends at once and well when it is stopped. */
const LASTING = `sh -c 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done'`;

async function startPlatform(): Promise<PlatformProcess> {
  const catalog = join(tmpdir(), `millrace-catalog-${process.pid}-${Date.now()}.json`);
  const cpu = { id: 'cpu', vcpuCounts: [2], maxMemory: 8, vcpuPrice: VCPU_PRICE, memoryPrice: 0 };
  await writeFile(catalog, JSON.stringify({ gpus: [], cpus: [cpu] }));
  const args = ['--engine', 'process', '--catalog', catalog];
  const platform = await PlatformProcess.start({ endpoints: [], args });
  onTestFinished(async () => {
    await platform.close();
    await rm(catalog);
  });
  return platform;
}

async function read<T>(response: Response): Promise<T> {
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return JSON.parse(await response.text());
}

async function until<T>(find: () => Promise<T | undefined>): Promise<T> {
  for (;;) {
    const found = await find();
    if (found !== undefined) return found;
    await sleep(50);
  }
}

/** The last run of the pod's container, as the engine has recorded it. */
async function readRun(platform: PlatformProcess, id: string) {
  const folder = join(platform.folder, 'data');
  const paths = await readdir(folder, { recursive: true }).catch(() => []);
  const found = paths.find((path) => path.includes(id) && /\/run-\d+$/.test(path));
  return found === undefined ? undefined : findRun(join(folder, found, '..'));
}

/** IDs of the pods whose containers the engine has started. */
async function listRan(platform: PlatformProcess): Promise<string[]> {
  const paths = await readdir(join(platform.folder, 'data'), { recursive: true });
  const runs = paths.filter((path) => /\/run-\d+$/.test(path));
  return [...new Set(runs.flatMap((path) => path.match(/pod_[0-9a-f-]{36}/)?.[0] ?? []))];
}

it('bills exactly what pods ran, although the platform is killed while they start and end', async () => {
  const platform = await startPlatform();
  const create = async (name: string) =>
    read<PodRecord>(
      await platform.post('/v2/pods', { name, image: 'none', args: LASTING, cpu: CPU }),
    );
  const ids = (await Promise.all(['a', 'b', 'c'].map(create))).map(({ id }) => id);
  const random = createRandom(Number(process.env['SEED'] ?? 1));
  const act = async (id: string, action: string) => {
    // Refused, or broken off by the kill.
    const sent = platform.post(`/v2/pods/${id}/action`, { action });
    await sent.then((answer) => answer.text()).catch(() => {});
  };
  const killWhile = async (action: string) => {
    const acts = ids.map((id) => act(id, action));
    await sleep(Math.floor(random() * 60));
    await platform.kill();
    await Promise.all(acts);
    await sleep(Math.floor(random() * 60));
    await platform.restart();
  };
  /** Milliseconds by pod and start. */
  const ran = new Map<string, number>();
  for (let round = 0; round < ROUNDS; round++) {
    await killWhile('start');
    for (const id of ids) {
      await until(async () => {
        const run = await readRun(platform, id);
        if (run?.record && !run.end) return run;
        return act(id, 'start').then(() => undefined);
      });
    }
    await killWhile('stop');
    for (const id of ids) {
      const { end, record } = await until(async () => {
        const run = await readRun(platform, id);
        if (run?.end) return run;
        return act(id, 'stop').then(() => undefined);
      });
      const startedAt = record?.startedAt ?? 0;
      ran.set(`${id} ${startedAt}`, (end?.at ?? 0) - startedAt);
    }
  }
  expect(ran.size).toBe(ids.length * ROUNDS);
  const sums = ids.map((id) => [id, sumOf([...ran].filter(([run]) => run.startsWith(id)))]);
  const expected = Object.fromEntries(sums);
  let billed: Record<string, number> = {};
  // The platform may not have seen the last end yet.
  for (let look = 0; look < 100; look++) {
    const bill = await read<BillingPage>(await platform.fetch('/v1/billing?group=resource'));
    billed = Object.fromEntries(bill.records.map(({ id, seconds }) => [id, seconds * 1_000]));
    if (ids.every((id) => billed[id] === expected[id])) break;
    await sleep(100);
  }
  expect(billed).toEqual(expected);
});

function sumOf(runs: readonly (readonly [string, number])[]): number {
  return runs.reduce((sum, [, ms]) => sum + ms, 0);
}

it('starts no pods and workers beyond a budget, until its limit is raised', async () => {
  const platform = await startPlatform();
  const pod = { name: 'spends', image: 'none', args: LASTING, cpu: CPU };
  const { id: spending } = await read<PodRecord>(await platform.post('/v2/pods', pod));
  const budget = await read<BudgetRecord>(
    await platform.post('/v1/budgets', { name: 'all', limit: 0.01 }),
  );
  const show = async () => read<BudgetRecord>(await platform.fetch(`/v1/budgets/${budget.id}`));
  await until(async () => ((await show()).state === 'used_up' ? true : undefined));

  const refused = await platform.post('/v2/pods', { ...pod, name: 'refused' });
  expect(refused.status).toBe(409);
  expect(await refused.json()).toMatchObject({ code: 'over_budget' });

  const template = { name: 'worker', image: 'none', handler: fixture('square.ts'), env: {} };
  const { id: templateId } = await read<{ id: string }>(
    await platform.post('/v1/templates', template),
  );
  const { id: endpoint } = await read<{ id: string }>(
    await platform.post('/v1/endpoints', { name: 'jobs', templateId, workersMax: 1 }),
  );
  const { id: job } = await read<{ id: string }>(
    await platform.post(`/v2/${endpoint}/run`, { input: { n: 3, ms: 0 } }),
  );
  const readJob = async () =>
    read<JobRecord>(await platform.fetch(`/v2/${endpoint}/status/${job}`));
  await until(async () => ((await readJob()).waitReason?.code === 'budget' ? true : undefined));

  // After a kill, the bill has nothing of the pod that still runs.
  await platform.kill();
  await platform.restart();
  const first = await platform.post('/v2/pods', { ...pod, name: 'refused' });
  expect(first.status, await first.text()).toBe(409);
  await until(async () => ((await readJob()).waitReason?.code === 'budget' ? true : undefined));
  await until(async () => ((await show()).state === 'used_up' ? true : undefined));
  expect(await listRan(platform)).toEqual([spending]);

  const body = JSON.stringify({ limit: 1_000_000 });
  const headers = { 'content-type': 'application/json' };
  await read(await platform.fetch(`/v1/budgets/${budget.id}`, { method: 'PATCH', headers, body }));
  await until(async () => ((await readJob()).status === 'COMPLETED' ? true : undefined));
  await read(await platform.post('/v2/pods', { ...pod, name: 'allowed' }));
});
