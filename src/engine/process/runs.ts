// The runs of a container, as their files and the processes tell of them. A file is made by the run
// itself, so that what is seen here is what happened, whoever has started it.
import { appendFile, readdir, readFile, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Clock, sleep } from '../../base/clock.ts';
import { isAlive } from './process-table.ts';
import { parseRunRecord, type RunRecord } from './run-record.ts';

const RUN_FILE = /^run-(\d+)$/;
const SCRIPT_FILE = /^start-.*\.sh$/;
/** Who has made the file writes it at once; or has been killed in between. */
const WRITE_LIMIT_MS = 1_000;
const LOOK_AGAIN_MS = 5;
/** Of one that had no time to tell: it was killed. */
const KILLED = 137;

export interface SeenRun {
  number: number;
  file: string;
  /** Undefined: it ended before it had begun. */
  record: RunRecord | undefined;
  /** Undefined while it runs. `at`: Unix ms. */
  end: { code: number; at: number } | undefined;
}

export type RunningRun = SeenRun & { record: RunRecord; end: undefined };

export function isRunning(run: SeenRun | undefined): run is RunningRun {
  return run !== undefined && run.end === undefined && run.record !== undefined;
}

export function runFile(folder: string, number: number): string {
  return join(folder, `run-${number}`);
}

/** The container's last run; undefined if there was none. */
export async function findRun(folder: string, clock: Clock): Promise<SeenRun | undefined> {
  const numbers = (await listFiles(folder, RUN_FILE)).map((name) => Number(name.slice(4)));
  const number = Math.max(0, ...numbers);
  return number === 0 ? undefined : readRun(folder, number, clock);
}

async function readRun(folder: string, number: number, clock: Clock): Promise<SeenRun> {
  const file = runFile(folder, number);
  const record = await readRecord(file, clock);
  if (record && record.exitCode === null && isAlive(record.leader)) {
    return { number, file, record, end: undefined };
  }
  // It may have written its code just before it ended, and after it was read.
  const last = parseRunRecord(await readText(file)) ?? record;
  // The first one's word counts, should two find it dead.
  if (last && last.exitCode === null) await appendFile(file, `${KILLED}\n`);
  const { mtimeMs = 0 } = (await stat(file).catch(() => undefined)) ?? {};
  return {
    number,
    file,
    record: last,
    end: {
      code: last?.exitCode ?? KILLED,
      at: Math.max(last?.startedAt ?? 0, Math.round(mtimeMs)),
    },
  };
}

async function readRecord(file: string, clock: Clock): Promise<RunRecord | undefined> {
  const giveUpAt = clock.now() + WRITE_LIMIT_MS;
  for (;;) {
    const record = parseRunRecord(await readText(file));
    if (record || clock.now() >= giveUpAt) return record;
    await sleep(clock, LOOK_AGAIN_MS);
  }
}

/** Of a run that has begun: the runs before it, and the scripts that were to begin it. */
export async function forgetBefore({ file, number }: SeenRun): Promise<void> {
  const folder = dirname(file);
  const runs = await listFiles(folder, RUN_FILE);
  const past = runs.filter((name) => Number(name.slice(4)) < number);
  for (const name of [...past, ...(await listFiles(folder, SCRIPT_FILE))]) {
    await rm(join(folder, name), { force: true });
  }
}

async function listFiles(folder: string, form: RegExp): Promise<string[]> {
  return (await readdir(folder).catch(() => [])).filter((name) => form.test(name));
}

function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(() => '');
}
