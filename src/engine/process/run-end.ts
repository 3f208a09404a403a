// Ends runs: first what leads, politely; then whatever of it is left, wherever it has hidden.
import { type Clock, sleep } from '../../base/clock.ts';
import { EngineError } from '../engine.ts';
import { listMembers } from './cgroups.ts';
import { RUN_VARIABLE } from './environment.ts';
import {
  findBeneath,
  findByVariable,
  isAlive,
  type ProcessEntry,
  readCommandLine,
  readProcess,
  readProcesses,
  signalProcess,
} from './process-table.ts';
import type { RunRecord } from './run-record.ts';

const LOOK_AGAIN_MS = 10;
/** A killed process can be held back by a device or a file system, not for good. */
const KILL_LIMIT_MS = 10_000;

export interface EndingRun {
  /** The run's file, as its processes know it. */
  name: string;
  /** Undefined: nothing is known of it, or it never began. */
  record: RunRecord | undefined;
  /** Seen before, and perhaps not found any more now that its leader is gone. */
  known?: readonly ProcessEntry[];
  clock: Clock;
}

export interface PoliteEnding extends EndingRun {
  /** For it to end by itself. */
  graceMs: number;
  /** The platform ends first: it is for the next one to ask again, and to kill. */
  closing: AbortSignal;
}

/**
 * Asks its command to end, and waits until it has, or `graceMs` are over.
 * @throws EngineError `unavailable` when `closing` comes first
 */
export async function askToEnd(ending: PoliteEnding): Promise<void> {
  const { clock, closing, graceMs, record } = ending;
  if (!record) return;
  const giveUpAt = clock.now() + graceMs;
  const main = await findMain(record, clock, giveUpAt);
  if (main) signalProcess(main, 'SIGTERM');
  while (isAlive(record.leader) && clock.now() < giveUpAt) {
    if (closing.aborted) throw new EngineError('unavailable', 'the platform ends');
    await sleep(clock, LOOK_AGAIN_MS);
  }
}

/** Kills all that there is of it. @throws EngineError `unavailable` */
export async function killAll(run: EndingRun): Promise<void> {
  const { clock, known = [] } = run;
  const giveUpAt = clock.now() + KILL_LIMIT_MS;
  for (;;) {
    const members = [...findMembers(run), ...known.filter(isStillThere)];
    if (members.length === 0) return;
    if (clock.now() >= giveUpAt) {
      const numbers = members.map(({ pid }) => pid).join(', ');
      throw new EngineError('unavailable', `processes do not end: ${numbers}`);
    }
    for (const member of members) signalProcess(member, 'SIGKILL');
    await sleep(clock, LOOK_AGAIN_MS);
  }
}

function isStillThere({ pid, startTicks }: ProcessEntry): boolean {
  const now = readProcess(pid);
  return now?.startTicks === startTicks && !now.isDead;
}

/** All that live: what its group has, what descends from its leader, what has its variable. */
export function findMembers({ name, record }: EndingRun): ProcessEntry[] {
  const processes = readProcesses();
  const marked = findByVariable(RUN_VARIABLE, name, processes);
  if (!record) return marked;
  const numbers = new Set(listMembers(record.groups));
  const grouped = processes.filter(({ isDead, pid }) => numbers.has(pid) && !isDead);
  return [...new Set([...marked, ...grouped, ...findBeneath(record.leader, processes)])];
}

/** The command's own process, once the shell between has made way for it. */
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
    await sleep(clock, LOOK_AGAIN_MS);
  }
  return undefined;
}
