// Ends runs: first asks the command to exit, then kills all remaining processes, even hidden ones.
import { type Clock, sleep } from '../../base/clock.ts';
import {
  findBeneath,
  findByVariable,
  isAlive,
  type Marked,
  type ProcessEntry,
  readCommandLine,
  readProcess,
  readProcesses,
  signalProcess,
} from '../../base/process/process-table.ts';
import { EngineError } from '../engine.ts';
import { forbidForks, listMembers } from './cgroups.ts';
import { RUN_VARIABLE } from './run-start.ts';
import type { RunRecord } from './runs.ts';

const RECHECK_MS = 10;
/** A device or a file system can delay the end of a killed process for a while. */
const KILL_LIMIT_MS = 10_000;

/** Identifies the processes of a run, or of all runs of a container. */
interface ProcessSearch {
  /** The run's file, as its processes know it; or the common prefix of the files of all runs. */
  name: string;
  /**
   * Readable records. A pod that runs as the platform's own user may have removed or damaged some.
   */
  records: readonly RunRecord[];
  /** Folders of control groups that hold nothing else, besides those in the records. */
  groups?: readonly string[];
  /** Processes seen before, which may not be found any more now that their leader is gone. */
  known?: readonly ProcessEntry[];
}

interface GracefulEnd {
  record: RunRecord;
  clock: Clock;
  /** Time to exit by itself, ms. */
  graceMs: number;
  /** The platform stops: the next one must ask again, and kill. */
  closing: AbortSignal;
}

/**
 * Asks the command to exit and waits until it has, or until `graceMs` are over.
 * @throws EngineError `unavailable` if `closing` comes first
 */
export async function requestExit(ending: GracefulEnd): Promise<void> {
  const { clock, closing, graceMs, record } = ending;
  const giveUpAt = clock.now() + graceMs;
  const main = await findMain(record, clock, giveUpAt);
  if (main) signalProcess(main, 'SIGTERM');
  while (isAlive(record.leader) && clock.now() < giveUpAt) {
    if (closing.aborted) throw new EngineError('unavailable', 'the platform ends');
    await sleep(clock, RECHECK_MS);
  }
}

/** Kills all of its processes; resolves when none is left. @throws EngineError `unavailable` */
export async function killAll(search: ProcessSearch, clock: Clock): Promise<void> {
  // A process that is exiting has no variables any more, but may still hold its files and devices.
  const seen = new Map((search.known ?? []).map((entry) => [entry.pid, entry]));
  const giveUpAt = clock.now() + KILL_LIMIT_MS;
  const counted = search.records.flatMap(({ groups }) => groups.pids ?? []);
  counted.push(...(search.groups ?? []));
  for (let round = 0; ; round++) {
    const { found, unknown } = findMarked(search);
    for (const entry of found) seen.set(entry.pid, entry);
    const members = [...seen.values()].filter(isStillThere);
    if (members.length + unknown.length === 0) return;
    if (clock.now() >= giveUpAt) {
      if (members.length === 0) return;
      const numbers = members.map(({ pid }) => pid).join(', ');
      throw new EngineError('unavailable', `processes do not end: ${numbers}`);
    }
    for (const member of members) signalProcess(member, 'SIGKILL');
    // Not before the first kill: a shell that cannot fork would exit with a code of its own.
    if (round === 0) for (const group of counted) forbidForks(group);
    await sleep(clock, RECHECK_MS);
  }
}

function isStillThere({ pid, startTicks }: ProcessEntry): boolean {
  const now = readProcess(pid);
  return now?.startTicks === startTicks && !now.isDead;
}

/** All live processes: those in its groups, those with its variable, and their descendants. */
export function findMembers(search: ProcessSearch): ProcessEntry[] {
  return findMarked(search).found;
}

function findMarked({ groups = [], name, records }: ProcessSearch): Marked {
  const processes = readProcesses();
  const folders = [...groups, ...records.flatMap((record) => record.groups.tracking ?? [])];
  const grouped = new Set([...new Set(folders)].flatMap(listMembers));
  const marked = findByVariable(RUN_VARIABLE, name, processes);
  const leaders = records.map(({ leader }) => leader).filter(isAlive);
  const roots = [...marked.found, ...leaders].map(({ pid }) => pid);
  const found = findBeneath(new Set([...grouped, ...roots]), processes);
  return { ...marked, found };
}

/** The command's own process, once the intermediate shell has been replaced. */
async function findMain(
  { leader }: RunRecord,
  clock: Clock,
  giveUpAt: number,
): Promise<ProcessEntry | undefined> {
  while (isAlive(leader)) {
    const shell = readCommandLine(leader.pid);
    const main = readProcesses().find(
      ({ isDead, parentPid, pid }) =>
        parentPid === leader.pid && !isDead && ![shell, ''].includes(readCommandLine(pid)),
    );
    if (main || clock.now() >= giveUpAt) return main && readProcess(main.pid);
    await sleep(clock, RECHECK_MS);
  }
  return undefined;
}
