// Runs jobs through real workers and a real platform with network faults between them, and checks that
// each job ends once, with the right output and all chunks.

import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Count } from '../handlers/counting.ts';
import { type Fault, TcpProxy, type Weather } from '../network/tcp-proxy.ts';
import { PlatformProcess, type Process } from '../processes.ts';
import { createRandom } from '../random.ts';

export interface FaultRun {
  kind: Fault['kind'];
  /** Transport of the workers. Default: http. */
  link?: 'http' | 'grpc';
  jobs: number;
  /** Faults stop after this number, and in any case for the last fifth of the jobs. */
  maxFaults: number;
  /** A job that takes longer fails the run, ms. */
  limitMs: number;
  seed: number;
}

export interface FaultGroup {
  kinds: FaultRun['kind'][];
  link: 'http' | 'grpc';
}

export interface FaultResult {
  acknowledged: number;
  /** Number of faults. */
  faults: number;
  /** Jobs that were delivered more than once. */
  repeated: number;
  /** One line for each job with a wrong end. */
  wrong: string[];
  /** One line for each job that changed after its end. */
  changed: string[];
  /** Exit codes of the workers: 0 if the worker has delivered everything. */
  exitCodes: (number | null)[];
}

/** Two workers, so that one takes over jobs that the other cannot renew. */
const WORKERS = ['w1', 'w2'];
/** More than the workers' slots, so that some jobs always wait. */
const CLIENTS = 12;
const POLL_MS = 200;
/** Leases expire on a slow machine even without a fault: their number must not fail a job. */
const ATTEMPTS = ['--max-attempts', '100'];
const TERMS = ['--renew-every-ms', '700', '--take-wait-ms', '1000', ...ATTEMPTS];
const LEASE_MS = 3_000;
const GRPC_URL = /Workers over gRPC at (\S+)/;
/** A worker gives up an unanswered renewal after 5.7 s: the next one is still in time. */
const HALF_OPEN_LEASE_MS = 8_000;

/** Share of exchanges with a fault; lower for faults that take more time. */
const SHARES: Record<Fault['kind'], number> = {
  cut: 0.25,
  'half-open': 0.1,
  slow: 0.4,
  held: 0.3,
  truncated: 0.25,
  'answer-lost': 0.25,
};

/** Starts a platform with an endpoint for each kind of fault, so that the runs can be concurrent. */
export function startFaultPlatform({ kinds, link }: FaultGroup): Promise<PlatformProcess> {
  // So long that most renewals are in time. Over gRPC, a held message also delays renewals.
  const isLong = kinds.some((kind) => kind === 'half-open' || (kind === 'held' && link === 'grpc'));
  const leaseMs = isLong ? HALF_OPEN_LEASE_MS : LEASE_MS;
  const ports = link === 'grpc' ? ['--grpc-port', '0'] : [];
  const args = [...TERMS, '--lease-ms', String(leaseMs), ...ports];
  return PlatformProcess.start({ endpoints: kinds, args });
}

/** Runs on a new platform. */
export async function runUnderFaults(run: FaultRun): Promise<FaultResult> {
  const platform = await startFaultPlatform({ kinds: [run.kind], link: run.link ?? 'http' });
  try {
    return await runFaultsOn(platform, run);
  } finally {
    await platform.close();
  }
}

/** @param shared a platform started for this kind, and perhaps others */
export async function runFaultsOn(shared: PlatformProcess, run: FaultRun): Promise<FaultResult> {
  const random = createRandom(run.seed);
  const { kind: endpoint, link = 'http' } = run;
  const place = { platform: shared, endpoint };
  const target = link === 'grpc' ? await shared.process.find(GRPC_URL) : shared.url;
  const proxy = await TcpProxy.start(target);
  try {
    proxy.weather = createWeather(run);
    const workers = WORKERS.map((id) => startWorker(place, proxy, { id, link }));
    const asked = Array.from({ length: run.jobs }, (_, n) => chooseJob(n, random));
    const ended = await runJobs(place, asked, {
      until: Date.now() + run.limitMs,
      onEnd: (share) => {
        if (share >= 0.8) proxy.weather = undefined;
      },
    });
    // After the workers have exited, no report can still be in transit.
    const exitCodes = await Promise.all(workers.map((worker) => worker.end()));
    const wrong = ended.flatMap((job) => findFlaw(job) ?? []);
    const changed = await findChanges(place, ended);
    if (wrong.length + changed.length > 0 || exitCodes.some((code) => code !== 0)) {
      for (const { output } of [shared.process, ...workers]) console.log(output);
    }
    const repeated = ended.filter(({ seen }) => seen.record.attempt > 1).length;
    const faults = proxy.struck;
    return { acknowledged: ended.length, faults, repeated, wrong, changed, exitCodes };
  } finally {
    await proxy.close();
  }
}

/** The endpoint of one run. */
interface Place {
  platform: PlatformProcess;
  endpoint: string;
}

interface WorkerTerms {
  id: string;
  link: 'http' | 'grpc';
}

function startWorker(
  { endpoint, platform }: Place,
  proxy: TcpProxy,
  { id, link }: WorkerTerms,
): Process {
  const slots = ['--unsupervised', '--threads', '1', '--jobs-per-thread', '4'];
  return platform.startWorker(
    endpoint,
    'counting.ts',
    ...slots,
    '--worker-id',
    id,
    '--url',
    proxy.url,
    '--link',
    link,
  );
}

async function findChanges(place: Place, ended: readonly EndedJob[]) {
  const changes: string[] = [];
  for (const { id, seen } of ended) {
    const now = await look(place, id);
    if (isDeepStrictEqual(now, seen)) continue;
    changes.push(`${id}: ${JSON.stringify(seen)} → ${JSON.stringify(now)}`);
  }
  return changes;
}

/** Every second job streams. */
function chooseJob(n: number, random: () => number): Count {
  if (n % 2 === 0) return { n, ms: Math.floor(random() * 100) };
  return { n, ms: Math.floor(random() * 15), yields: 5 + Math.floor(random() * 16) };
}

function createWeather({ kind, maxFaults, seed }: FaultRun): Weather {
  const random = createRandom(seed + 1);
  let left = maxFaults;
  return () => {
    if (left === 0 || random() >= SHARES[kind]) return undefined;
    left--;
    return chooseFault(kind, random);
  };
}

/** Most messages of the link have 150 to 600 bytes; faults are spread over this range. */
function chooseFault(kind: Fault['kind'], random: () => number): Fault {
  const direction = random() < 0.5 ? 'request' : 'answer';
  const afterBytes = Math.floor(random() * 600);
  switch (kind) {
    case 'cut':
    case 'half-open':
      return { kind, direction, afterBytes };
    case 'truncated':
      return { kind, afterBytes };
    case 'slow':
      return { kind, bytesPerSecond: 500 + Math.floor(random() * 5_000) };
    case 'held':
      // One in ten is held until the worker gives up its renewal, and the next renewal overtakes it.
      if (random() < 0.1)
        return { kind, direction, behind: Number.POSITIVE_INFINITY, maxMs: 7_000 };
      return { kind, direction, behind: 1 + Math.floor(random() * 20), maxMs: 1_000 };
    case 'answer-lost':
      return { kind };
  }
}

interface EndedJob {
  id: string;
  asked: Count;
  seen: Seen;
}

/** Runs the jobs. @returns each job as first seen after its end */
async function runJobs(
  place: Place,
  asked: readonly Count[],
  { until, onEnd }: { until: number; onEnd: (share: number) => void },
): Promise<EndedJob[]> {
  const ended: EndedJob[] = [];
  const waiting = [...asked];
  const client = async () => {
    for (let job = waiting.shift(); job; job = waiting.shift()) {
      const answer = await place.platform.post(`/v2/${place.endpoint}/run`, { input: job });
      const { id } = jobRef.parse(await answer.json());
      await waitForEnd(place, id, until);
      ended.push({ id, asked: job, seen: await look(place, id) });
      onEnd(ended.length / asked.length);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  return ended;
}

async function waitForEnd(place: Place, id: string, until: number): Promise<void> {
  for (;;) {
    const { status } = await readRecord(place, id);
    const live = status === 'IN_QUEUE' || status === 'IN_PROGRESS';
    if (!live || Date.now() > until) return;
    await sleep(POLL_MS);
  }
}

const jobRef = z.object({ id: z.string() });
const seenRecord = z.looseObject({
  status: z.string(),
  attempt: z.number(),
  output: z.unknown().exactOptional(),
});
const seenChunks = z.array(z.object({ output: z.unknown(), metrics: z.looseObject({}) }));

interface Seen {
  record: z.infer<typeof seenRecord>;
  chunks: unknown[];
}

async function look(place: Place, id: string): Promise<Seen> {
  const record = await readRecord(place, id);
  const answer = await place.platform.fetch(`/v2/${place.endpoint}/stream/${id}?after=0&wait=0`);
  const chunks = seenChunks.parse(await answer.json()).map(({ output }) => output);
  return { record, chunks };
}

async function readRecord(place: Place, id: string): Promise<Seen['record']> {
  const answer = await place.platform.fetch(`/v2/${place.endpoint}/status/${id}`);
  return seenRecord.parse(await answer.json());
}

/** Returns undefined if the job ended correctly. */
function findFlaw({ id, asked, seen }: EndedJob): string | undefined {
  const { n, yields } = asked;
  const { record, chunks } = seen;
  const output =
    yields === undefined
      ? { n, square: n * n }
      : Array.from({ length: yields }, (_, index) => ({ n, index, attempt: record.attempt }));
  const isRight =
    record.status === 'COMPLETED' &&
    isDeepStrictEqual(record.output, output) &&
    // A job whose handler does not yield has its output as its only chunk.
    isDeepStrictEqual(chunks, yields === undefined ? [output] : output);
  return isRight ? undefined : `${id} ${JSON.stringify(asked)}: ${JSON.stringify(seen)}`;
}
