// Reads the runs of a container from their files and processes, and builds the seam's view of the container from the last
// one. Each number's record appears once, as a whole. The process that has written it has started the run.
import { appendFile, link, readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { isAlive, type ProcessIdentity, parseStat } from '../../base/process/process-table.ts';
import type { Container, ContainerPort, PublicPort } from '../engine.ts';
import type { ContainerFolder } from './container-folders.ts';

const RUN_FILE = /^run-(\d+)$/;
/** Files of runs that have ended or never began. */
const PASSING_FILE = /^(?:exit-[0-9a-f]+|claim-[0-9a-f]+|start-.*\.sh)$/;
/** Exit code of a run that was killed. */
const KILLED = 137;

export interface SeenRun {
  number: number;
  file: string;
  /** Undefined: unreadable. */
  record: RunRecord | undefined;
  outOfMemory: boolean;
  /** Undefined while it runs. `at`: Unix ms; null: no engine saw when it was killed. */
  end: { code: number; at: number | null } | undefined;
}

export type RunningRun = SeenRun & { record: RunRecord; end: undefined };

export function isRunning(run: SeenRun | undefined): run is RunningRun {
  return run !== undefined && run.end === undefined && run.record !== undefined;
}

export function runFile(folder: string, number: number): string {
  return join(folder, `run-${number}`);
}

/**
 * The container's last run; undefined without one. `watched`: file of a run that the caller has seen running. Without it, a
 * run that was killed may have ended long ago.
 */
export async function findRun(folder: string, watched?: string): Promise<SeenRun | undefined> {
  const numbers = (await listFiles(folder, RUN_FILE)).map((name) => Number(name.slice(4)));
  const number = Math.max(0, ...numbers);
  return number === 0 ? undefined : readRun(folder, number, watched);
}

/** @returns false if the run has already begun */
export async function claimRun(claim: {
  folder: string;
  number: number;
  /** Unique for each call. */
  once: string;
  text: string;
}): Promise<boolean> {
  const { folder, number, once, text } = claim;
  const written = join(folder, `claim-${once}`);
  try {
    await writeFile(written, text, { mode: 0o600, flag: 'wx' });
    await link(written, runFile(folder, number));
    return true;
  } catch (error) {
    // A faster call may also have removed the files of others, this claim among them.
    if ((await stat(runFile(folder, number)).catch(() => undefined)) !== undefined) return false;
    throw error;
  } finally {
    await rm(written, { force: true });
  }
}

/** Keeps the time of the end, which may be long ago. Does nothing if the container is gone. */
export async function noteOutOfMemory({ file, record }: SeenRun): Promise<void> {
  const path = locateExit(file, record);
  try {
    const endedAt = Math.round((await stat(path)).mtimeMs) / 1_000;
    await appendFile(path, `${OUT_OF_MEMORY}\n`);
    await utimes(path, endedAt, endedAt);
  } catch {}
}

async function readRun(folder: string, number: number, watched?: string): Promise<SeenRun> {
  const file = runFile(folder, number);
  const record = parseRunRecord(await readText(file));
  // Checked before the exit code is read, because the code is written just before the process
  // exits.
  const isAliveNow = record !== undefined && isAlive(record.leader);
  const exit = parseRunExit(await readText(locateExit(file, record)));
  const seen = { number, file, record, outOfMemory: exit.outOfMemory };
  if (isAliveNow && exit.exitCode === null) return { ...seen, end: undefined };
  const isEndSeen = exit.exitCode === null ? watched === file : exit.isEndSeen;
  if (exit.exitCode === null) {
    const lines = isEndSeen ? `${KILLED}\n` : `${END_UNSEEN}\n${KILLED}\n`;
    // The container may be gone.
    await appendFile(locateExit(file, record), lines).catch(() => {});
  }
  const { mtimeMs = 0 } = (await stat(locateExit(file, record)).catch(() => undefined)) ?? {};
  const at = isEndSeen ? Math.max(record?.startedAt ?? 0, Math.round(mtimeMs)) : null;
  return { ...seen, end: { code: exit.exitCode ?? KILLED, at } };
}

/** If the record is unreadable, the end is stored behind it. */
function locateExit(file: string, record: RunRecord | undefined): string {
  return record ? join(dirname(file), record.exitFile) : file;
}

/** Removes the files of earlier runs and of runs that never began. */
export async function forgetBefore({ file, number, record }: SeenRun): Promise<void> {
  const folder = dirname(file);
  const runs = await listFiles(folder, RUN_FILE);
  const past = runs.filter((name) => Number(name.slice(4)) < number);
  const passing = await listFiles(folder, PASSING_FILE);
  const others = passing.filter((name) => name !== record?.exitFile);
  for (const name of [...past, ...others]) await rm(join(folder, name), { force: true });
}

async function listFiles(folder: string, form: RegExp): Promise<string[]> {
  return (await readdir(folder).catch(() => [])).filter((name) => form.test(name));
}

/**
 * Limit of a record or an exit file, far more than either needs. A pod may have found a way to
 * write to them.
 */
const MAX_FILE_BYTES = 65_536;

async function readText(path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    return size > MAX_FILE_BYTES ? '' : await readFile(path, 'utf8');
  } catch {
    return '';
  }
}

/** Groups of the run, as folders; empty if none can be created. */
const runGroups = z.object({
  /** Contains every process of the run. */
  tracking: z.string().nullable(),
  memory: z.string().nullable(),
  cpu: z.string().nullable(),
  pids: z.string().nullable(),
});
export type RunGroups = z.infer<typeof runGroups>;

const runNote = z.object({
  startedAt: z.int(),
  ports: z.array(
    z.object({
      private: z.int(),
      public: z.int(),
      type: z.enum(['http', 'tcp', 'udp']),
      ip: z.string(),
    }),
  ),
  groups: runGroups,
  gpus: z.array(z.string()),
  exitFile: z.string().regex(/^exit-[0-9a-f]+$/),
});

export interface RunNote {
  /** Unix ms. */
  startedAt: number;
  ports: readonly GivenPort[];
  groups: RunGroups;
  /** UUIDs of its GPUs. */
  gpus: readonly string[];
  /** Beside the record. */
  exitFile: string;
}

export interface RunRecord extends RunNote {
  /** The script's shell. */
  leader: ProcessIdentity;
}

interface RunExit {
  /** Null: the run has not reported one, because it runs or was killed. */
  exitCode: number | null;
  outOfMemory: boolean;
  /** The file changed when the run ended. False: the run was found dead. */
  isEndSeen: boolean;
}

/** Lines in the file of the exit code. */
const OUT_OF_MEMORY = 'out of memory';
const END_UNSEEN = 'end unseen';

/** `stat`: of the leader, from /proc. */
export function writeRunRecord(stat: string, bootId: string, note: RunNote): string {
  return [stat.trim(), bootId, JSON.stringify(note), ''].join('\n');
}

/** Undefined for an invalid record, which a pod may have damaged. */
export function parseRunRecord(text: string): RunRecord | undefined {
  const [stat = '', bootId = '', note = '', ...rest] = text.split('\n');
  const leader = parseStat(stat);
  // A line is complete when its line break is there.
  if (!leader || rest.length === 0) return undefined;
  const parsed = runNote.safeParse(parseJson(note));
  if (!parsed.success) return undefined;
  return { ...parsed.data, leader: { pid: leader.pid, startTicks: leader.startTicks, bootId } };
}

/** Reads an exit file. The first entry counts. */
export function parseRunExit(text: string): RunExit {
  const lines = text.split('\n').slice(0, -1);
  const code = lines.find((line) => /^\d{1,3}$/.test(line));
  return {
    exitCode: code === undefined ? null : Number(code),
    outOfMemory: lines.includes(OUT_OF_MEMORY),
    isEndSeen: !lines.includes(END_UNSEEN),
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The view of a container, from its spec and its last run. */
export function describeContainer(
  { isDiskLimited, spec }: Pick<ContainerFolder, 'isDiskLimited' | 'spec'>,
  run: SeenRun | undefined,
): Container {
  const { generation, gpus, id, labels } = spec;
  const isLive = isRunning(run);
  return {
    id,
    generation,
    labels,
    state: isLive ? 'running' : run ? 'exited' : 'created',
    health: 'none',
    exitCode: run?.end?.code ?? null,
    outOfMemory: run?.end !== undefined && run.outOfMemory,
    hasDiskLimit: isDiskLimited,
    startedAt: run?.record?.startedAt ?? null,
    endedAt: run?.end?.at ?? null,
    ports: isLive ? run.record.ports : [],
    gpus: run?.record?.gpus ?? gpus,
    gpusAtStart: true,
    ip: null,
  };
}

/** Has no generation of its pod, so that a new container replaces it. */
export function describeDamaged(id: string): Container {
  return {
    id,
    generation: 0,
    labels: {},
    state: 'exited',
    health: 'none',
    exitCode: null,
    outOfMemory: false,
    startedAt: null,
    endedAt: null,
    hasDiskLimit: false,
    ports: [],
    gpus: [],
    ip: null,
  };
}

const PORT_ADDRESS = '127.0.0.1';
/** Ports offered by the system that may be rejected before giving up. */
const MAX_OFFERS = 100;

export interface GivenPort extends PublicPort {
  public: number;
}

/** Assigns free ports of this machine to containers, each to one container only. */
export class PortPool {
  /** A container with a port may not listen on it yet. */
  readonly #assigned = new Set<number>();

  /**
   * Assigns one port for each private port, the same for all its protocols; as `before` if it is
   * still free.
   */
  async assign(
    ports: readonly ContainerPort[],
    before: readonly GivenPort[],
  ): Promise<GivenPort[]> {
    const given: GivenPort[] = [];
    for (const { private: own, protocol } of ports) {
      const same = given.find((port) => port.private === own)?.public;
      const known = before.find((port) => port.private === own)?.public;
      const found = same ?? (await this.#take(known)) ?? (await this.#takeAny());
      given.push({ private: own, public: found, type: protocol, ip: PORT_ADDRESS });
    }
    return given;
  }

  /** Marks the ports of a running container, which another platform process may have started. */
  reserve(ports: readonly GivenPort[]): void {
    for (const port of ports) this.#assigned.add(port.public);
  }

  release(ports: readonly GivenPort[]): void {
    for (const port of ports) this.#assigned.delete(port.public);
  }

  async #takeAny(): Promise<number> {
    for (let offers = 0; offers < MAX_OFFERS; offers++) {
      const port = await this.#take(0);
      if (port !== undefined) return port;
    }
    throw new Error('no free port');
  }

  async #take(wanted: number | undefined): Promise<number | undefined> {
    if (wanted === undefined) return undefined;
    const port = await tryPort(wanted);
    if (port === undefined || this.#assigned.has(port)) return undefined;
    this.#assigned.add(port);
    return port;
  }
}

/** Listens for a moment; 0 selects any port. Undefined if the port is in use. */
function tryPort(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen(port, PORT_ADDRESS, () => {
      const address = server.address();
      const found = typeof address === 'object' && address ? address.port : undefined;
      server.close(() => resolve(found));
    });
  });
}
