// Pods and volumes come and go on three nodes while nodes are killed and paused, the leader most of all. At the end,
// the bill is compared with what the engines have recorded of each run, and with the callers' times of each volume.
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { createPlatform } from '../../../src/client/platform-client.ts';
import type { BillingRecord } from '../../../src/wire/resources/billing.ts';
import { networkVolumeRecord } from '../../../src/wire/resources/network-volume.ts';
import { type RecordedRun, RunRecords } from '../containers/run-records.ts';
import { NodeProcesses } from '../node-processes.ts';
import { sayingOf, standInFolder } from '../nvidia-smi/stand-in.ts';
import { PostgresServer } from '../postgres.ts';
import { createRandom } from '../random.ts';
import { AnyAnswer } from './any-answer.ts';
import { causeOutages, type Outage } from './node-outages.ts';

export interface BillingRun {
  /** How long nodes fail, ms. */
  forMs: number;
  seed: number;
}

/** USD an hour: a second costs more than a cent. */
const [VCPU_PRICE, GPU_PRICE] = [360, 3_600];
/** USD for 1 GB and month. */
const VOLUME_PRICE = 1_000;
const CATALOG = {
  gpus: [
    { id: 'h200', price: GPU_PRICE, match: 'NVIDIA H200' },
    { id: 'a100', price: GPU_PRICE, match: 'NVIDIA A100-SXM4-80GB' },
  ],
  cpus: [{ id: 'cpu', vcpuCounts: [2], maxMemory: 8, vcpuPrice: VCPU_PRICE, memoryPrice: 0 }],
  dataCenters: [{ id: 'here', networkVolumePrice: VOLUME_PRICE }],
};
const CPU = { cpu: { id: 'cpu', vcpuCount: 2, memory: 1 } };
const PODS = [CPU, CPU, CPU, CPU, { gpu: { id: 'h200', count: 1 } }, gpus(1), gpus(2)];
const VOLUMES = 4;
/** Orphans are removed, budgets are judged. */
const SETTLE_MS = 120_000;

function gpus(count: number) {
  return { gpu: { id: 'a100', count } };
}

interface World {
  nodes: NodeProcesses;
  records: RunRecords;
}

export async function runBilledPods(run: BillingRun): Promise<Verdict> {
  const catalog = join(tmpdir(), `millrace-catalog-${process.pid}-${Date.now()}.json`);
  await writeFile(catalog, JSON.stringify(CATALOG));
  const server = await PostgresServer.start();
  const nodes = await NodeProcesses.start({
    ...{ store: await server.createDatabase(), count: 0, shards: 6, endpoints: [] },
    ...{ engine: 'process', args: ['--catalog', catalog] },
  });
  let records: RunRecords | undefined;
  try {
    await nodes.add();
    const PATH = `${standInFolder}${delimiter}${process.env['PATH']}`;
    for (const says of ['eight-a100', 'one-h200'] as const) {
      await nodes.add({ env: { PATH, ...sayingOf(says) } });
    }
    await nodes.at(0).process.find(/(?:node found[\s\S]*){3}/);
    records = new RunRecords(nodes.all.map(({ folder }) => folder));
    return await bill({ nodes, records }, run);
  } finally {
    records?.close();
    await nodes.close();
    await server.stop();
    await rm(catalog);
  }
}

async function bill({ nodes, records }: World, { forMs, seed }: BillingRun): Promise<Verdict> {
  const random = createRandom(seed);
  const caller = new AnyAnswer(nodes.all, random);
  const lives: Lives = { caller, random, isOver: false, removed: new Map(), volumes: [] };
  const { adminKey: key, url } = nodes.at(0);
  const platform = createPlatform({ url, key });
  const { id: budget } = await platform.budgets.create({ name: 'all', limit: 1_000_000 });
  const failing = causeOutages({ nodes, caller, random, forMs }).finally(() => {
    lives.isOver = true;
  });
  const living = [
    ...PODS.map((spec, n) => liveAsPods(lives, `pod-${n}`, spec)),
    ...Array.from({ length: VOLUMES }, (_, n) => liveAsVolumes(lives, `volume-${n}`)),
  ];
  const [outages] = await Promise.all([failing, ...living]);
  await removeAllPods(lives);
  await removeAllVolumes(lives);
  const read = async (): Promise<ReadBill> => {
    const options = { group: 'resource', limit: 1_000 } as const;
    const pods = await platform.billing.get({ ...options, kind: 'pod' });
    const volumes = await platform.billing.get({ ...options, kind: 'volume' });
    const { total } = await platform.billing.get({ group: 'step' });
    const { spent } = await platform.budgets.get(budget);
    return { pods: pods.records, volumes: volumes.records, total: total.cost, spent };
  };
  const { removed, volumes } = lives;
  const until = Date.now() + SETTLE_MS;
  for (;;) {
    const happened = { removed, volumes, outages, volumePrice: VOLUME_PRICE };
    const { missed } = records;
    const verdict = compareBill({ ...happened, runs: records.read(), missed }, await read());
    if (verdict.flaws.length === 0 || Date.now() >= until) return verdict;
    await sleep(500);
  }
}

export interface Happened extends Pick<Lives, 'removed' | 'volumes'> {
  runs: readonly RecordedRun[];
  /** Runs of which the test has no record. */
  missed: readonly string[];
  outages: readonly Outage[];
  /** USD for 1 GB and month. */
  volumePrice: number;
}

export interface ReadBill {
  pods: readonly BillingRecord[];
  volumes: readonly BillingRecord[];
  /** USD. */
  total: string;
  /** What the budget of the user has found, USD. */
  spent: string;
}

export interface Verdict {
  flaws: string[];
  pods: number;
  /** Those that were deleted while their node did not answer: billed as long as the platform saw them run. */
  unseen: number;
  runs: number;
  volumes: number;
  outages: Record<string, number>;
}

/** A node is still taken for gone for so long after it answers again, and a deletion waits for so long, ms. */
const RETURN_MS = 15_000;
/** From the removal of its record to the end of the last process of a container, at most. */
const KILL_MS = 10_000;
/** The end of a run is on the bill by then, also on a loaded machine, ms. */
const SEEN_MS = 10_000;
/** The clock of a platform is ahead by so much after its start, so that no time comes twice. */
const CLOCK_MS = 1_000;
const MONTH_MS = 730 * 3_600_000;
const GB = 1_000;
const MICRO_USD = 0.000_001;

export function compareBill(happened: Happened, bill: ReadBill): Verdict {
  const { missed, outages, runs, volumes } = happened;
  const ofPods = comparePods(happened, bill);
  const all = [...bill.pods, ...bill.volumes];
  const sum = all.reduce((before, { cost }) => before + Number(cost), 0);
  // Each cost is rounded.
  const isSum = Math.abs(sum - Number(bill.total)) <= all.length * MICRO_USD;
  const flaws = [
    ...missed.map((name) => `${name}: the test has no record of this run`),
    ...ofPods.flaws,
    ...compareVolumes(happened, bill),
    ...(isSum ? [] : [`all together: billed ${bill.total} USD, sum ${sum}`]),
    ...(bill.spent === bill.total ? [] : [`budget: spent ${bill.spent} of ${bill.total} USD`]),
  ];
  const names = outages.map(({ hasLed, kind }) => `${hasLed ? 'leader' : 'other'} ${kind}`);
  const counts = Object.entries(Object.groupBy(names, (name) => name));
  return {
    ...{ flaws, pods: ofPods.pods, unseen: ofPods.unseen, runs: runs.length },
    ...{ volumes: volumes.length },
    outages: Object.fromEntries(counts.map(([name, each]) => [name, each?.length ?? 0])),
  };
}

function comparePods(happened: Happened, { pods: billed }: ReadBill) {
  const byPod = new Map<string, RecordedRun[]>();
  for (const run of happened.runs) {
    byPod.set(run.podId, [...(byPod.get(run.podId) ?? []), run]);
  }
  const flaws = billed
    .filter(({ id }) => !byPod.has(id ?? ''))
    .map(({ id, seconds }) => `${id}: billed ${seconds} s, never ran`);
  let unseen = 0;
  for (const [id, runs] of byPod) {
    const record = billed.find((each) => each.id === id);
    const ms = Math.round((record?.seconds ?? 0) * 1_000);
    const unknown = runs.filter((run) => isEndUnseen(run, happened));
    const least = sumOf(runs.filter((run) => !unknown.includes(run)));
    const most = least + sumOf(unknown, KILL_MS);
    if (unknown.length > 0) unseen += 1;
    if (ms >= least && ms <= most) continue;
    const told = runs.map(
      ({ endedAt, goneAt, startedAt }) => `${startedAt}..${endedAt ?? `(${goneAt})`}`,
    );
    flaws.push(
      `${id}: billed ${ms} ms, ran ${least} to ${most} ms: ${told.join(' ')}, ` +
        `removed at ${happened.removed.get(id)}, its node was gone: ${listOutages(happened, runs)}`,
    );
  }
  return { flaws, unseen, pods: byPod.size };
}

function listOutages({ outages }: Happened, runs: readonly RecordedRun[]): string {
  const own = outages.filter(({ folder }) => runs.some((run) => run.folder === folder));
  return own.map(({ from, kind, to }) => `${kind} ${from}..${to}`).join(', ');
}

/** NaN if one of them has no end, which no bill equals. */
function sumOf(runs: readonly RecordedRun[], laterMs?: number): number {
  const lengths = runs.map(({ endedAt, goneAt, startedAt }) => {
    const latest = laterMs === undefined ? undefined : (goneAt ?? Number.NaN) + laterMs;
    return (endedAt ?? latest ?? Number.NaN) - startedAt;
  });
  return lengths.reduce((sum, ms) => sum + ms, 0);
}

/** The run was found dead, or the pod was deleted while its node did not answer: nobody may have seen the end. */
function isEndUnseen(run: RecordedRun, { outages, removed }: Happened): boolean {
  if (!run.isEndSeen) return true;
  const removedAt = removed.get(run.podId) ?? Number.POSITIVE_INFINITY;
  const { goneAt = Number.POSITIVE_INFINITY } = run;
  const { endedAt = goneAt } = run;
  const isDown = ({ folder, from, to }: Outage) =>
    folder === run.folder && from - SEEN_MS <= endedAt && to + RETURN_MS >= removedAt;
  return outages.some(isDown);
}

function compareVolumes({ volumePrice, volumes }: Happened, bill: ReadBill): string[] {
  const known = new Set(volumes.map(({ id }) => id));
  const flaws = bill.volumes
    .filter(({ id }) => !known.has(id ?? ''))
    .map(({ id, seconds }) => `${id}: billed ${seconds} s, unknown`);
  for (const volume of volumes) {
    const { createdAt, deleted, id, sizes } = volume;
    const record = bill.volumes.find((each) => each.id === id);
    const ms = Math.round((record?.seconds ?? 0) * 1_000);
    const [least, most] = [
      deleted.from - createdAt - CLOCK_MS,
      deleted.seenAt - createdAt + CLOCK_MS,
    ];
    if (ms < least || ms > most) flaws.push(`${id}: billed ${ms} ms of ${least} to ${most}`);
    const cost = Number(record?.cost ?? 0);
    const price = (volumePrice * GB) / MONTH_MS;
    const bound = (grownAt: 'from' | 'seenAt') => costOf(volume, createdAt + ms, grownAt) * price;
    const slack = CLOCK_MS * sizes.length * price + MICRO_USD;
    const [low, high] = [bound('seenAt') - slack, bound('from') + slack];
    if (cost < low || cost > high) flaws.push(`${id}: billed ${cost} USD of ${low} to ${high}`);
  }
  return flaws;
}

/** Of a volume of 1,000 GB that has grown by as much at each of these times: sizes times ms. */
function costOf({ createdAt, sizes }: VolumeLife, end: number, grownAt: 'from' | 'seenAt') {
  const grown = sizes.map((each) => end - Math.min(end, each[grownAt]));
  return grown.reduce((sum, ms) => sum + ms, end - createdAt);
}

export interface Lives {
  caller: AnyAnswer;
  random: () => number;
  isOver: boolean;
  /** When the deletion of a pod was first asked for, Unix ms. */
  removed: Map<string, number>;
  volumes: VolumeLife[];
}

/** Times are Unix ms. Of a change, only the times before the request and after its effect was seen are known. */
export interface VolumeLife {
  id: string;
  createdAt: number;
  /** GB. */
  sizes: { size: number; from: number; seenAt: number }[];
  deleted: { from: number; seenAt: number };
}

const LONGEST_WAIT_MS = 4_000;
const MOST_ACTIONS = 4;
const MOST_GROWTHS = 3;
/** Ends at once when it is stopped. */
const LASTING = `sh -c 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done'`;

const created = z.object({ id: z.string() });

/** Creates one pod after the other, each for a few actions. */
export async function liveAsPods(lives: Lives, name: string, spec: object): Promise<void> {
  const { caller, random, removed } = lives;
  for (let n = 0; !lives.isOver; n++) {
    const args = random() < 0.25 ? `sleep ${(random() * 3).toFixed(2)}` : LASTING;
    const body = { name: `${name}-${n}`, image: 'none', args, disk: 1, ...spec };
    const made = await caller.ask({ method: 'POST', path: '/v2/pods', body });
    if (made?.status !== 201) {
      await sleep(random() * LONGEST_WAIT_MS);
      continue;
    }
    const { id } = created.parse(made.body);
    for (let left = 1 + random() * MOST_ACTIONS; left > 0; left--) {
      await sleep(random() * LONGEST_WAIT_MS);
      const action = ['start', 'stop', 'restart'][Math.floor(random() * 3)];
      await caller.ask({ method: 'POST', path: `/v2/pods/${id}/action`, body: { action } });
    }
    removed.set(id, Date.now());
    await caller.insist({ method: 'DELETE', path: `/v2/pods/${id}` });
  }
}

/** Deletes pods whose creation was broken off. */
export async function removeAllPods({ caller, removed }: Lives): Promise<void> {
  const listed = z.object({ pods: z.array(z.object({ id: z.string(), status: z.string() })) });
  const { body } = await caller.insist({ path: '/v2/pods?limit=1000' });
  for (const { id, status } of listed.parse(body).pods) {
    if (status === 'TERMINATED') continue;
    if (!removed.has(id)) removed.set(id, Date.now());
    await caller.insist({ method: 'DELETE', path: `/v2/pods/${id}` });
  }
}

/** Creates one volume after the other, and grows each. */
export async function liveAsVolumes(lives: Lives, name: string): Promise<void> {
  const { caller, random, volumes } = lives;
  for (let n = 0; !lives.isOver; n++) {
    const body = { name: `${name}-${n}`, size: GB };
    const made = await caller.ask({ method: 'POST', path: '/v1/network-volumes', body });
    if (made?.status !== 201) {
      await sleep(random() * LONGEST_WAIT_MS);
      continue;
    }
    await live(lives, networkVolumeRecord.parse(made.body), volumes);
  }
}

/** Deletes volumes whose creation was broken off. */
export async function removeAllVolumes(lives: Lives): Promise<void> {
  const listed = z.object({ networkVolumes: z.array(networkVolumeRecord) });
  const { body } = await lives.caller.insist({ path: '/v1/network-volumes?limit=1000' });
  for (const volume of listed.parse(body).networkVolumes) {
    const { createdAt, id } = volume;
    const life = { id, createdAt: Date.parse(createdAt ?? ''), sizes: [] };
    lives.volumes.push({ ...life, deleted: await remove(lives, id) });
  }
}

async function live(
  lives: Lives,
  { createdAt, id }: z.infer<typeof networkVolumeRecord>,
  volumes: VolumeLife[],
): Promise<void> {
  const { random } = lives;
  const sizes: VolumeLife['sizes'] = [];
  for (let left = random() * MOST_GROWTHS; left > 1; left--) {
    await sleep(random() * LONGEST_WAIT_MS);
    const size = GB * (sizes.length + 2);
    sizes.push({ size, ...(await grow(lives, id, size)) });
  }
  await sleep(random() * LONGEST_WAIT_MS);
  const deleted = await remove(lives, id);
  volumes.push({ id, createdAt: Date.parse(createdAt ?? ''), sizes, deleted });
}

async function grow({ caller }: Lives, id: string, size: number) {
  const from = Date.now();
  const path = `/v1/network-volumes/${id}`;
  const { body, status } = await caller.insist({ method: 'PATCH', path, body: { size } });
  if (status !== 200) throw new Error(`${status}: ${JSON.stringify(body)}`);
  return { from, seenAt: Date.now() };
}

async function remove({ caller }: Lives, id: string) {
  const from = Date.now();
  const path = `/v1/network-volumes/${id}`;
  const { body, status } = await caller.insist({ method: 'DELETE', path });
  if (status !== 204 && status !== 404) throw new Error(`${status}: ${JSON.stringify(body)}`);
  return { from, seenAt: Date.now() };
}
