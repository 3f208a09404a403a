// What a worker finished is not lost: real processes that die between the handler's end and the
// platform's acknowledgement.
import { execFileSync, spawnSync } from 'node:child_process';
import { appendFile, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { readSurvivors } from '../../src/worker/outbox/outbox-entries.ts';
import { PlatformProcess, type Process } from '../support/processes.ts';

const ENDPOINT = 'script';
const LEASE_MS = 2_000;
const JOURNAL_HEADER_BYTES = 8;
/** Of util-linux: sets limits of a process that runs. */
const LIMITER = 'prlimit';
const seenRecord = z.looseObject({
  status: z.string(),
  attempt: z.number().exactOptional(),
  output: z.unknown().exactOptional(),
});
const jobRef = z.object({ id: z.string() });

let platform: PlatformProcess | undefined;

afterEach(async () => {
  await platform?.close();
  platform = undefined;
});

async function startPlatform(): Promise<PlatformProcess> {
  platform = await PlatformProcess.start({
    endpoints: [ENDPOINT],
    args: ['--lease-ms', String(LEASE_MS), '--renew-every-ms', '500'],
  });
  return platform;
}

const stateDir = (platform: PlatformProcess) => join(platform.folder, 'state');

function startWorker(platform: PlatformProcess, ...args: string[]): Process {
  return platform.startWorker(
    ENDPOINT,
    'api-script.ts',
    // The process itself is killed and limited here, not one beneath it.
    '--unsupervised',
    '--state-dir',
    stateDir(platform),
    ...args,
  );
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await sleep(10);
}

async function readOrNothing(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '');
}

/** A job that notes each of its runs, waits for a file, yields and answers; it has begun to run. */
async function runJob(platform: PlatformProcess, name = 'job') {
  const runs = join(platform.folder, `${name}-runs`);
  const go = join(platform.folder, `${name}-go`);
  const steps = [
    { do: 'yield', value: `${name} 1` },
    { do: 'note', file: runs, text: 'run' },
    { do: 'wait', file: go },
    { do: 'yield', value: `${name} 2` },
    { do: 'yield', value: `${name} 3` },
  ];
  const body = { input: { steps } };
  const answer = await platform.post(`/v2/${ENDPOINT}/run`, body);
  const { id } = jobRef.parse(await answer.json());
  await until(async () => (await readOrNothing(runs)) !== '');
  return {
    id,
    finish: () => writeFile(go, ''),
    countRuns: async () => (await readOrNothing(runs)).split('\n').length - 1,
  };
}

async function waitForEnd(platform: PlatformProcess, id: string) {
  for (;;) {
    const answer = await platform.fetch(`/v2/${ENDPOINT}/status/${id}`);
    const record = seenRecord.parse(await answer.json());
    if (!['IN_QUEUE', 'IN_PROGRESS'].includes(record.status)) return record;
    await sleep(20);
  }
}

async function waitForOutcomes(folder: string, count: number): Promise<void> {
  await until(async () => (await readSurvivors(folder)).length === count);
}

/** No file of the process may grow beyond that: its writes fail as on a disk that is full. */
function limitFiles({ child }: Process, bytes: number | 'unlimited'): void {
  execFileSync(LIMITER, ['--pid', String(child.pid), `--fsize=${bytes}:`]);
}

function canLimitFiles(): boolean {
  return spawnSync(LIMITER, ['--version']).status === 0;
}

/** The job ends while the platform is dead, and its worker dies before the platform is back. */
async function endUnheard(platform: PlatformProcess) {
  const worker = startWorker(platform, '--worker-id', 'w1');
  const job = await runJob(platform);
  await platform.kill();
  await job.finish();
  await waitForOutcomes(join(stateDir(platform), 'w1'), 1);
  await worker.end('SIGKILL');
  return job;
}

const WHOLE = { status: 'COMPLETED', attempt: 1, output: ['job 1', 'job 2', 'job 3'] };

describe('a worker with --state-dir', () => {
  it('that is killed with an undelivered outcome delivers it as its next process', async () => {
    const platform = await startPlatform();
    const job = await endUnheard(platform);
    await platform.restart();
    const next = startWorker(platform, '--worker-id', 'w1');
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
    await next.find(/outcome of an earlier process delivered/);
    expect(await next.end()).toBe(0);
    expect(await readSurvivors(join(stateDir(platform), 'w1'))).toEqual([]);
  });

  it('restarts under its name without an option, as a later incarnation', async () => {
    const platform = await startPlatform();
    const worker = startWorker(platform);
    const job = await runJob(platform);
    await platform.kill();
    await job.finish();
    const [name = ''] = await readdir(stateDir(platform));
    await waitForOutcomes(join(stateDir(platform), name), 1);
    await worker.end('SIGKILL');
    await platform.restart();
    startWorker(platform);
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
    expect(await readdir(stateDir(platform))).toEqual([name]);
  });

  it('that was stopped as the platform answered is not run again', async () => {
    const platform = await startPlatform();
    const worker = startWorker(platform, '--worker-id', 'w1');
    const job = await runJob(platform);
    platform.process.child.kill('SIGSTOP');
    await job.finish();
    await waitForOutcomes(join(stateDir(platform), 'w1'), 1);
    await worker.end('SIGKILL');
    platform.process.child.kill('SIGCONT');
    startWorker(platform, '--worker-id', 'w1');
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
  });

  it('keeps its jobs while the platform is away for longer than a lease', async () => {
    const platform = await startPlatform();
    const worker = startWorker(platform, '--worker-id', 'w1');
    const ended = await runJob(platform, 'a');
    const running = await runJob(platform, 'b');
    await platform.kill();
    await ended.finish();
    await sleep(2 * LEASE_MS);
    await platform.restart();
    expect(await waitForEnd(platform, ended.id)).toMatchObject({ status: 'COMPLETED', attempt: 1 });
    await sleep(1.5 * LEASE_MS);
    await running.finish();
    expect(await waitForEnd(platform, running.id)).toMatchObject({
      status: 'COMPLETED',
      attempt: 1,
    });
    expect([await ended.countRuns(), await running.countRuns()]).toEqual([1, 1]);
    expect(await worker.end()).toBe(0);
  });

  it('cuts off what was written halfway, and delivers what is whole', async () => {
    const platform = await startPlatform();
    const job = await endUnheard(platform);
    const journal = join(stateDir(platform), 'w1', 'outbox.journal');
    const bytes = await readFile(journal);
    await appendFile(journal, bytes.subarray(8, 60));
    await platform.restart();
    const next = startWorker(platform, '--worker-id', 'w1');
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
    expect(next.output).toMatch(/incomplete end of the outbox removed/);
  });

  it('drops an outcome, with a line in the log, whose job another worker has done', async () => {
    const platform = await startPlatform();
    const job = await endUnheard(platform);
    await platform.restart();
    const other = platform.startWorker(ENDPOINT, 'api-script.ts');
    expect(await waitForEnd(platform, job.id)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
    await other.end();
    const next = startWorker(platform, '--worker-id', 'w1');
    await next.find(/outcome of an earlier process dropped/);
    await until(async () => (await readSurvivors(join(stateDir(platform), 'w1'))).length === 0);
    expect(await waitForEnd(platform, job.id)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  });

  it('says so and works in memory where it cannot write', async () => {
    const platform = await startPlatform();
    await writeFile(stateDir(platform), 'a file and no folder');
    const worker = startWorker(platform, '--worker-id', 'w1');
    const job = await runJob(platform);
    await job.finish();
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
    expect(worker.output).toMatch(/state folder cannot be used, .* in memory only/);
    expect(await worker.end()).toBe(0);
  });

  it.runIf(process.platform === 'linux')('says so and works on a disk that is full', async () => {
    const platform = await startPlatform();
    await mkdir(join(stateDir(platform), 'w1'), { recursive: true });
    await symlink('/dev/full', join(stateDir(platform), 'w1', 'outbox.journal'));
    const worker = startWorker(platform, '--worker-id', 'w1');
    const job = await runJob(platform);
    await job.finish();
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
    expect(worker.output).toMatch(/ENOSPC/);
    expect(worker.output).toMatch(/in memory only/);
    expect(await worker.end()).toBe(0);
  });

  it.runIf(canLimitFiles())('goes on in memory while the disk is full, and says so', async () => {
    const platform = await startPlatform();
    const worker = startWorker(platform, '--worker-id', 'w1');
    const job = await runJob(platform);
    await platform.kill();
    limitFiles(worker, JOURNAL_HEADER_BYTES);
    await job.finish();
    await worker.find(/outbox on disk failed, .* in memory only/);
    limitFiles(worker, 'unlimited');
    await worker.find(/outbox on disk works again/);
    await worker.end('SIGKILL');
    await platform.restart();
    startWorker(platform, '--worker-id', 'w1');
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
  });

  it('leaves at once if another process has the folder', async () => {
    const platform = await startPlatform();
    const first = startWorker(platform, '--worker-id', 'w1');
    await first.find(/worker ready/);
    const second = startWorker(platform, '--worker-id', 'w1');
    expect(await second.exited).toBe(1);
    expect(second.output).toContain(
      `--state-dir: ${join(stateDir(platform), 'w1')} cannot be used: another process (pid ${first.child.pid}) uses it`,
    );
    const job = await runJob(platform);
    await job.finish();
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
  });
});

describe('outcomes of a worker that does not run any more', () => {
  it('are delivered by another worker of the same state folder, under the old name', async () => {
    const platform = await startPlatform();
    const job = await endUnheard(platform);
    await platform.restart();
    const other = startWorker(platform, '--worker-id', 'w2');
    expect(await waitForEnd(platform, job.id)).toMatchObject({ ...WHOLE, workerId: 'w1' });
    expect(await job.countRuns()).toBe(1);
    await other.find(/delivering outcomes left by a dead worker/);
    await other.find(/"leftBy":"w1","outcomes":1,"msg":"delivered outcomes left by a dead worker/);
    expect(await readSurvivors(join(stateDir(platform), 'w1'))).toEqual([]);
    const next = await runJob(platform, 'next');
    await next.finish();
    expect(await waitForEnd(platform, next.id)).toMatchObject({ workerId: 'w2' });
    expect(await other.end()).toBe(0);
  });

  it('go with their folder where the state folder is one pod’s alone', async () => {
    const platform = await startPlatform();
    const job = await endUnheard(platform);
    await platform.restart();
    const other = startWorker(platform, '--worker-id', 'w2', '--state-owner', 'w2');
    expect(await waitForEnd(platform, job.id)).toMatchObject({ ...WHOLE, workerId: 'w1' });
    await other.find(/delivered outcomes left by a dead worker/);
    expect(await other.end()).toBe(0);
    expect(await readdir(stateDir(platform))).toEqual([]);
  });

  it('leave no folder behind where nothing was left and the state folder is one pod’s alone', async () => {
    const platform = await startPlatform();
    const first = startWorker(platform, '--worker-id', 'w1');
    const job = await runJob(platform);
    first.kill();
    await first.exited;
    startWorker(platform, '--worker-id', 'w2', '--state-owner', 'w2');
    await job.finish();
    const record = await waitForEnd(platform, job.id);
    expect(record).toMatchObject({ status: 'COMPLETED', workerId: 'w2', attempt: 2 });
    await expect.poll(() => readdir(stateDir(platform))).toEqual(['w2']);
  });

  it('are left to that worker as soon as it runs again', async () => {
    const platform = await startPlatform();
    const job = await endUnheard(platform);
    const other = startWorker(platform, '--worker-id', 'w2');
    await other.find(/delivering outcomes left by a dead worker/);
    const owner = startWorker(platform, '--worker-id', 'w1');
    await owner.find(/state folder opened/);
    await platform.restart();
    await owner.find(/outcome of an earlier process delivered/);
    expect(await waitForEnd(platform, job.id)).toMatchObject(WHOLE);
    expect(await job.countRuns()).toBe(1);
    expect([await owner.end(), await other.end()]).toEqual([0, 0]);
  });

  it('of another endpoint are named in the log, and left alone', async () => {
    const platform = await startPlatform();
    await endUnheard(platform);
    const other = startWorker(platform, '--worker-id', 'w2', '--endpoint', 'another');
    await other.find(
      /"name":"w1","outcomes":1,"endpoint":"script","msg":"outcomes of another endpoint wait/,
    );
    expect(await other.end()).toBe(0);
    expect(await readSurvivors(join(stateDir(platform), 'w1'))).toHaveLength(1);
  });

  it('do not keep a worker from leaving while the platform is away', async () => {
    const platform = await startPlatform();
    await endUnheard(platform);
    const other = startWorker(platform, '--worker-id', 'w2');
    await other.find(/delivering outcomes left by a dead worker/);
    expect(await other.end()).toBe(0);
    expect(await readSurvivors(join(stateDir(platform), 'w1'))).toHaveLength(1);
  });
});
