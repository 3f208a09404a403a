// The bill and budgets of a real platform: it is killed while containers start and end, and it refuses to start more
// once a budget is used up.
import { readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import type { JobRecord } from '../../src/wire/job/job-records.ts';
import type { BillingPage } from '../../src/wire/resources/billing.ts';
import type { BudgetRecord } from '../../src/wire/resources/budget.ts';
import type { PodRecord } from '../../src/wire/resources/pod.ts';
import { type RecordedRun, RunRecords } from '../support/containers/run-records.ts';
import { fixture, PlatformProcess } from '../support/processes.ts';
import { createRandom } from '../support/random.ts';
import { until } from '../support/until.ts';

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

/** IDs of the pods whose containers the engine has started. */
async function listRan(platform: PlatformProcess): Promise<string[]> {
  const paths = await readdir(join(platform.folder, 'data'), { recursive: true });
  const runs = paths.filter((path) => /\/run-\d+$/.test(path));
  return [...new Set(runs.flatMap((path) => path.match(/pod_[0-9a-f-]{36}/)?.[0] ?? []))];
}

it('bills exactly what pods ran, although the platform is killed while they start and end', async () => {
  const platform = await startPlatform();
  const records = new RunRecords([platform.folder]);
  onTestFinished(() => records.close());
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
    // No engine can remove the record of a run now.
    records.read();
    await sleep(Math.floor(random() * 60));
    await platform.restart();
  };
  const untilAll = async (status: string, action: string) => {
    for (const id of ids) {
      await until(async () => {
        const pod = await read<PodRecord>(await platform.fetch(`/v2/pods/${id}`));
        if (pod.status === status) return pod;
        return act(id, action).then(() => undefined);
      });
    }
  };
  for (let round = 0; round < ROUNDS; round++) {
    await killWhile('start');
    await untilAll('RUNNING', 'start');
    await killWhile('stop');
    await untilAll('EXITED', 'stop');
  }
  /** Billed less run, ms. */
  const compare = async () => {
    const runs = records.read();
    const bill = await read<BillingPage>(await platform.fetch('/v1/billing?group=resource'));
    const billed = new Map(
      bill.records.map(({ id, seconds }) => [id, Math.round(seconds * 1_000)]),
    );
    const differences = ids.map((id) => (billed.get(id) ?? 0) - sumOf(id, runs));
    return { differences, missed: records.missed };
  };
  // A pod is EXITED as soon as its stop is accepted, before its run ends.
  const poll = expect.poll(compare, { timeout: 30_000, interval: 100 });
  await poll.toEqual({ differences: [0, 0, 0], missed: [] });
});

/** Milliseconds. An engine finds a run dead if the platform was killed before the command began: such a run is free. */
function sumOf(id: string, runs: readonly RecordedRun[]): number {
  const own = runs.filter(({ isEndSeen, podId }) => podId === id && isEndSeen);
  return own.reduce((ms, { endedAt = Number.NaN, startedAt }) => ms + endedAt - startedAt, 0);
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
