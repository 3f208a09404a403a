// Records a history of steady workers, while the platform is away for longer than a lease, and other workers report after
// they have lost theirs.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { silentLog } from '../../src/base/log.ts';
import { createHttpLink } from '../../src/transport/http-link.ts';
import { type LeaseRef, PROTOCOL_VERSION } from '../../src/wire/link/worker-link.ts';
import { PlatformProcess } from '../support/processes.ts';
import type { History } from './history.ts';
import { record } from './run.ts';
import {
  addUsers,
  LEASE_MS,
  OWN_ENDPOINTS,
  PLATFORM_ARGS,
  startWorkers,
  type User,
} from './stand.ts';

/** Jobs that run shorter end before anybody notices. */
const SLOW_MS = 300;
const POLL_MS = 20;
/** How many jobs a late worker takes, and how long it waits for one, ms. */
const JOBS = 12;
const TAKE_MS = 1_500;

const inputOf = z.object({ tag: z.string(), ms: z.number(), chunks: z.int().exactOptional() });
const statusOf = z.object({ status: z.string(), attempt: z.int() });

/** `bin`: the program of the platform. Default: that of this checkout. */
export async function recordAbsences(options: { bin?: string; seed: number }): Promise<History> {
  const { bin, seed } = options;
  await using ends = new AsyncDisposableStack();
  const about = { endpoints: OWN_ENDPOINTS, args: PLATFORM_ARGS, bin };
  const platform = await PlatformProcess.start(about);
  ends.defer(() => platform.close());
  const users = await addUsers(platform);
  startWorkers(ends, users, { urls: [platform.url], folder: platform.folder });
  const restart = async (awayMs: number) => {
    await platform.kill();
    await sleep(awayMs);
    await platform.restart();
  };
  return await record({
    ...{ seed, users, urls: () => [platform.url], clients: 18, loadMs: 10_000, settleMs: 60_000 },
    ...{ requestLimitMs: 8_000, areWorkersSteady: true, stories: ['slow', 'slow', 'long'] },
    calmMs: 1_000,
    faults: [
      {
        async 'platform away'() {
          await restart(1.5 * LEASE_MS);
          // Gets the jobs of workers that have not returned yet, if the platform has not extended their leases.
          await reportLate(platform, users[0]);
        },
        'late report': () => reportLate(platform, users[0]),
      },
    ],
    heal: () => restart(0),
  });
}

/** Takes jobs, does not renew them, and reports an output for each once the next attempt runs. */
async function reportLate(platform: PlatformProcess, { endpoint, workerKey }: User): Promise<void> {
  const workerId = `late-${randomUUID()}`;
  const identity = { workerId, incarnation: 1 };
  const { url } = platform;
  const link = createHttpLink({ url, endpointId: endpoint, key: workerKey, log: silentLog });
  try {
    const about = {
      protocol: PROTOCOL_VERSION,
      version: 'test',
      slots: JOBS,
      devices: [],
      outbox: [],
    };
    await link.hello({ ...identity, ...about });
    const take = { takeId: workerId, max: JOBS, waitMs: TAKE_MS, held: [] };
    const leases = await link.take({ ...identity, ...take }, AbortSignal.timeout(2 * TAKE_MS));
    await Promise.all(
      leases.map(async ({ input, ...lease }) => {
        const { chunks, ms, tag } = inputOf.parse(JSON.parse(Buffer.from(input).toString()));
        if (chunks !== undefined || ms < SLOW_MS || !(await hasNextAttempt(platform, lease)))
          return;
        const at = Date.now();
        const { attempt, jobId, token } = lease;
        const output = { tag, attempt, run: workerId, startedAt: at, endedAt: at, chunks: 0 };
        const outcome = { kind: 'completed', executionMs: 0, output: 'value' } as const;
        const header = { jobId, attempt, token, seq: 1, kind: 'outcome', outcome } as const;
        const body = Buffer.from(JSON.stringify(output));
        await link.report({ ...identity, reports: [{ ...header, body }] });
      }),
    );
    await link.bye({ ...identity, reason: 'drained', outbox: [] });
  } finally {
    await link.close();
  }
}

async function hasNextAttempt(platform: PlatformProcess, lease: LeaseRef): Promise<boolean> {
  for (const until = Date.now() + 3 * LEASE_MS; Date.now() < until; await sleep(POLL_MS)) {
    const response = await platform.fetch(`/v2/work/status/${lease.jobId}`);
    const { attempt, status } = statusOf.parse(await response.json());
    if (attempt > lease.attempt && status === 'IN_PROGRESS') return true;
  }
  return false;
}
