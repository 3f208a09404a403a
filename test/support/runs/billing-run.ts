// Pods and volumes come and go on three nodes while nodes are killed and paused, the leader most of all. At the end,
// the bill is compared with what the engines have recorded of each run, and with the callers' times of each volume.
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createPlatform } from '../../../src/client/platform-client.ts';
import { RunRecords } from '../containers/run-records.ts';
import { NodeProcesses } from '../node-processes.ts';
import { sayingOf, standInFolder } from '../nvidia-smi/stand-in.ts';
import { PostgresServer } from '../postgres.ts';
import { createRandom } from '../random.ts';
import { AnyAnswer } from './any-answer.ts';
import {
  type Lives,
  liveAsPods,
  liveAsVolumes,
  removeAllPods,
  removeAllVolumes,
} from './billing-lives.ts';
import { compareBill, type ReadBill, type Verdict } from './billing-verdict.ts';
import { causeOutages } from './node-outages.ts';

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
