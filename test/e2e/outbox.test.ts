// What a worker finished is not lost: real processes that die between the handler's end and the
// platform's acknowledgement.
import { execFileSync, spawnSync } from 'node:child_process';
import { appendFile, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { readUndelivered } from '../../src/worker/outbox/outbox-entries.ts';
import { HttpGate } from '../support/network/http-gate.ts';
import { PlatformProcess, type Process } from '../support/processes.ts';
import { until } from '../support/until.ts';

const LONG_LEASE_MS = 60_000;
const SHORT_LEASE_MS = 2_000;
const JOURNAL_HEADER_BYTES = 8;
/** Of util-linux: sets limits of a process that runs. */
const LIMITER = 'prlimit';
const seenRecord = z.looseObject({
  status: z.string(),
  attempt: z.number().exactOptional(),
  output: z.unknown().exactOptional(),
});
const jobRef = z.object({ id: z.string() });

/** The platforms serve all tests: each test has an endpoint and a state folder of its own. */
const ENDPOINTS = Array.from({ length: 20 }, (_, n) => `script-${n}`);
const unused = [...ENDPOINTS];

/** Leases outlive each test: what is delivered late is still in time, however slow the machine is. */
let patient: PlatformProcess;
/** A dead worker loses its job soon. */
let impatient: PlatformProcess;
let platform: PlatformProcess;
/** Stands between the workers and the platform, which is away as long as the gate refuses all. */
let gate: HttpGate;
let endpoint: string;

beforeAll(async () => {
  patient = await startPlatform(LONG_LEASE_MS);
  impatient = await startPlatform(SHORT_LEASE_MS);
});

afterAll(() => Promise.all([patient.close(), impatient.close()]));

afterEach(async () => {
  await platform.killWorkers();
  await gate.close();
});

function startPlatform(leaseMs: number): Promise<PlatformProcess> {
  const args = ['--lease-ms', String(leaseMs), '--renew-every-ms', '500'];
  return PlatformProcess.start({ endpoints: ENDPOINTS, args });
}

async function use(chosen: PlatformProcess): Promise<void> {
  platform = chosen;
  gate = await HttpGate.start(platform.url);
  endpoint = unused.shift() ?? '';
}

const isAway = { status: 503 };
const ownPath = (name: string) => join(platform.folder, `${endpoint}-${name}`);
const stateDir = () => ownPath('state');

function startWorker(...args: string[]): Process {
  return platform.startWorker(
    endpoint,
    'api-script.ts',
    // The process itself is killed and limited here, not one beneath it.
    '--unsupervised',
    '--url',
    gate.url,
    '--state-dir',
    stateDir(),
    ...args,
  );
}

async function readOrNothing(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '');
}

/** A job that notes each of its runs, waits for a file, yields and answers; it has begun to run. */
async function runJob(name = 'job') {
  const runs = ownPath(`${name}-runs`);
  const go = ownPath(`${name}-go`);
  const steps = [
    { do: 'yield', value: `${name} 1` },
    { do: 'note', file: runs, text: 'run' },
    { do: 'wait', file: go },
    { do: 'yield', value: `${name} 2` },
    { do: 'yield', value: `${name} 3` },
  ];
  const body = { input: { steps } };
  const answer = await platform.post(`/v2/${endpoint}/run`, body);
  const { id } = jobRef.parse(await answer.json());
  await until(async () => (await readOrNothing(runs)) !== '');
  return {
    id,
    finish: () => writeFile(go, ''),
    countRuns: async () => (await readOrNothing(runs)).split('\n').length - 1,
  };
}

async function waitForEnd(id: string) {
  return until(
    async () => {
      const answer = await platform.fetch(`/v2/${endpoint}/status/${id}`);
      const record = seenRecord.parse(await answer.json());
      return !['IN_QUEUE', 'IN_PROGRESS'].includes(record.status) && record;
    },
    { everyMs: 50 },
  );
}

async function waitForOutcomes(folder: string, count: number): Promise<void> {
  await until(async () => (await readUndelivered(folder)).length === count);
}

/** No file of the process may grow beyond that: its writes fail as on a disk that is full. */
function limitFiles({ child }: Process, bytes: number | 'unlimited'): void {
  execFileSync(LIMITER, ['--pid', String(child.pid), `--fsize=${bytes}:`]);
}

function canLimitFiles(): boolean {
  return spawnSync(LIMITER, ['--version']).status === 0;
}

/** The job ends while the platform is away, and its worker dies before the platform is back. */
async function endUnheard() {
  const worker = startWorker('--worker-id', 'w1');
  const job = await runJob();
  gate.refuseAll(isAway);
  await job.finish();
  await waitForOutcomes(join(stateDir(), 'w1'), 1);
  await worker.end('SIGKILL');
  return job;
}

const WHOLE = { status: 'COMPLETED', attempt: 1, output: ['job 1', 'job 2', 'job 3'] };

describe('a worker with --state-dir', () => {
  beforeEach(() => use(patient));

  it('delivers an undelivered outcome as its next process after a kill', async () => {
    const worker = startWorker('--worker-id', 'w1');
    const job = await runJob();
    await platform.kill();
    await job.finish();
    await waitForOutcomes(join(stateDir(), 'w1'), 1);
    await worker.end('SIGKILL');
    await platform.restart();
    const next = startWorker('--worker-id', 'w1');
    expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
    await next.find(/outcome of an earlier process delivered/);
    expect(await next.end()).toBe(0);
    expect(await readUndelivered(join(stateDir(), 'w1'))).toEqual([]);
  });

  it('restarts under its name without an option, as a later incarnation', async () => {
    const worker = startWorker();
    const job = await runJob();
    gate.refuseAll(isAway);
    await job.finish();
    const [name = ''] = await readdir(stateDir());
    await waitForOutcomes(join(stateDir(), name), 1);
    await worker.end('SIGKILL');
    gate.refuseAll(undefined);
    startWorker();
    expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
    expect(await readdir(stateDir())).toEqual([name]);
  });

  it('does not run its job again if it stops while the platform answers', async () => {
    const worker = startWorker('--worker-id', 'w1', '--url', platform.url);
    const job = await runJob();
    platform.process.child.kill('SIGSTOP');
    await job.finish();
    await waitForOutcomes(join(stateDir(), 'w1'), 1);
    await worker.end('SIGKILL');
    platform.process.child.kill('SIGCONT');
    startWorker('--worker-id', 'w1');
    expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
  });

  it('drops an incomplete record, and delivers complete ones', async () => {
    const job = await endUnheard();
    const journal = join(stateDir(), 'w1', 'outbox.journal');
    const bytes = await readFile(journal);
    await appendFile(journal, bytes.subarray(8, 60));
    gate.refuseAll(undefined);
    const next = startWorker('--worker-id', 'w1');
    expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
    expect(next.output).toMatch(/incomplete end of the outbox removed/);
  });

  it('works in memory with a log line if it cannot write', async () => {
    await writeFile(stateDir(), 'a file and no folder');
    const worker = startWorker('--worker-id', 'w1');
    const job = await runJob();
    await job.finish();
    expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
    expect(worker.output).toMatch(/state folder cannot be used, .* in memory only/);
    expect(await worker.end()).toBe(0);
  });

  it.runIf(process.platform === 'linux')('works on a full disk, with a log line', async () => {
    await mkdir(join(stateDir(), 'w1'), { recursive: true });
    await symlink('/dev/full', join(stateDir(), 'w1', 'outbox.journal'));
    const worker = startWorker('--worker-id', 'w1');
    const job = await runJob();
    await job.finish();
    expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
    expect(worker.output).toMatch(/ENOSPC/);
    expect(worker.output).toMatch(/in memory only/);
    expect(await worker.end()).toBe(0);
  });

  it.runIf(canLimitFiles())(
    'continues in memory while its journal cannot grow, with a log line',
    async () => {
      const worker = startWorker('--worker-id', 'w1');
      const job = await runJob();
      gate.refuseAll(isAway);
      limitFiles(worker, JOURNAL_HEADER_BYTES);
      await job.finish();
      await worker.find(/outbox on disk failed, .* in memory only/);
      limitFiles(worker, 'unlimited');
      await worker.find(/outbox on disk works again/);
      await worker.end('SIGKILL');
      gate.refuseAll(undefined);
      startWorker('--worker-id', 'w1');
      expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
      expect(await job.countRuns()).toBe(1);
    },
  );

  it('exits at once if another process has the folder', async () => {
    const first = startWorker('--worker-id', 'w1');
    await first.find(/worker ready/);
    const second = startWorker('--worker-id', 'w1');
    expect(await second.exited).toBe(1);
    expect(second.output).toContain(
      `--state-dir: ${join(stateDir(), 'w1')} cannot be used: another process (pid ${first.child.pid}) uses it`,
    );
    const job = await runJob();
    await job.finish();
    expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
  });
});

describe('outcomes of a worker that no longer runs', () => {
  beforeEach(() => use(patient));

  it('are delivered by another worker of the same state folder, under the old ID', async () => {
    const job = await endUnheard();
    gate.refuseAll(undefined);
    const other = startWorker('--worker-id', 'w2');
    expect(await waitForEnd(job.id)).toMatchObject({ ...WHOLE, workerId: 'w1' });
    expect(await job.countRuns()).toBe(1);
    await other.find(/delivering outcomes left by a dead worker/);
    await other.find(/"leftBy":"w1","outcomes":1,"msg":"delivered outcomes left by a dead worker/);
    expect(await readUndelivered(join(stateDir(), 'w1'))).toEqual([]);
    const next = await runJob('next');
    await next.finish();
    expect(await waitForEnd(next.id)).toMatchObject({ workerId: 'w2' });
    expect(await other.end()).toBe(0);
  });

  it('are removed with their folder after delivery if the state folder belongs to one pod', async () => {
    const job = await endUnheard();
    gate.refuseAll(undefined);
    const other = startWorker('--worker-id', 'w2', '--state-owner', 'w2');
    expect(await waitForEnd(job.id)).toMatchObject({ ...WHOLE, workerId: 'w1' });
    await other.find(/delivered outcomes left by a dead worker/);
    expect(await other.end()).toBe(0);
    expect(await readdir(stateDir())).toEqual([]);
  });

  it('are left to that worker if it runs again', async () => {
    const job = await endUnheard();
    const other = startWorker('--worker-id', 'w2');
    await other.find(/delivering outcomes left by a dead worker/);
    const owner = startWorker('--worker-id', 'w1');
    await owner.find(/state folder opened/);
    gate.refuseAll(undefined);
    await owner.find(/outcome of an earlier process delivered/);
    expect(await waitForEnd(job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
    expect([await owner.end(), await other.end()]).toEqual([0, 0]);
  });

  it('are logged and kept if they are of another endpoint', async () => {
    await endUnheard();
    const other = startWorker('--worker-id', 'w2', '--endpoint', 'another');
    await other.find(
      new RegExp(
        `"name":"w1","outcomes":1,"endpoint":"${endpoint}","msg":"outcomes of another endpoint wait`,
      ),
    );
    expect(await other.end()).toBe(0);
    expect(await readUndelivered(join(stateDir(), 'w1'))).toHaveLength(1);
  });

  it('do not delay the exit of a worker while the platform is down', async () => {
    await endUnheard();
    const other = startWorker('--worker-id', 'w2', '--url', 'http://127.0.0.1:1');
    await other.find(/delivering outcomes left by a dead worker/);
    expect(await other.end()).toBe(0);
    expect(await readUndelivered(join(stateDir(), 'w1'))).toHaveLength(1);
  });
});

describe('jobs whose leases end soon', () => {
  beforeEach(() => use(impatient));

  it('stay with their worker while the platform is down for longer than a lease', async () => {
    const worker = startWorker('--worker-id', 'w1');
    const ended = await runJob('a');
    const running = await runJob('b');
    await platform.kill();
    await ended.finish();
    await sleep(1.25 * SHORT_LEASE_MS);
    await platform.restart();
    expect(await waitForEnd(ended.id)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
    await sleep(1.25 * SHORT_LEASE_MS);
    await running.finish();
    expect(await waitForEnd(running.id)).toMatchObject({
      status: 'COMPLETED',
      attempt: 1,
    });
    expect([await ended.countRuns(), await running.countRuns()]).toEqual([1, 1]);
    expect(await worker.end()).toBe(0);
  });

  it('lose their outcome, with a log line, if another worker has ended the job', async () => {
    const job = await endUnheard();
    gate.refuseAll(undefined);
    const other = platform.startWorker(endpoint, 'api-script.ts', '--unsupervised');
    expect(await waitForEnd(job.id)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
    await other.end();
    const next = startWorker('--worker-id', 'w1');
    await next.find(/outcome of an earlier process dropped/);
    await until(async () => (await readUndelivered(join(stateDir(), 'w1'))).length === 0);
    expect(await waitForEnd(job.id)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('leave no folder behind if the state folder belongs to one pod', async () => {
    const first = startWorker('--worker-id', 'w1');
    const job = await runJob();
    first.kill();
    await first.exited;
    startWorker('--worker-id', 'w2', '--state-owner', 'w2');
    await job.finish();
    const record = await waitForEnd(job.id);
    expect(record).toMatchObject({ status: 'COMPLETED', workerId: 'w2', attempt: 2 });
    await expect.poll(() => readdir(stateDir())).toEqual(['w2']);
  });
});
