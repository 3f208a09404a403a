// The machine's processes as /proc tells of them: who lives, whose child it is, and to what container
// it belongs. A number alone says nothing: it is given again to another one when its process is gone.
import { readdirSync, readFileSync } from 'node:fs';

/** A process for as long as it lives, and no other after it. */
export interface ProcessIdentity {
  pid: number;
  /** When it started, in the kernel's ticks since `bootId`. */
  startTicks: string;
  /** Of the start of the machine. */
  bootId: string;
}

export interface ProcessEntry {
  pid: number;
  parentPid: number;
  sessionId: number;
  startTicks: string;
  /** A zombie, or on its way out: it runs nothing any more. */
  isDead: boolean;
  /** Of the processor's time, its own and that of the children it waited for. */
  cpuTicks: number;
}

/** Ticks in a second: the same on every Linux that runs Node. */
export const TICKS_PER_SECOND = 100;

let bootId: string | undefined;

function readBootId(): string {
  bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return bootId;
}

/** Undefined if there is no such process. */
export function readProcess(pid: number): ProcessEntry | undefined {
  try {
    return parseStat(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return undefined;
  }
}

export function readProcesses(): ProcessEntry[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name)))
    .filter((entry) => entry !== undefined);
}

/** A line of /proc/PID/stat. The name of the program, second, may hold blanks and parentheses. */
export function parseStat(line: string): ProcessEntry | undefined {
  const afterName = line.lastIndexOf(')');
  const pid = Number.parseInt(line, 10);
  const fields = line.slice(afterName + 2).split(' ');
  const startTicks = fields[19];
  if (afterName === -1 || !Number.isSafeInteger(pid) || startTicks === undefined) return undefined;
  const numberAt = (place: number) => Number(fields[place]);
  return {
    pid,
    parentPid: numberAt(1),
    sessionId: numberAt(3),
    startTicks,
    isDead: fields[0] === 'Z' || fields[0] === 'X',
    cpuTicks: numberAt(11) + numberAt(12) + numberAt(13) + numberAt(14),
  };
}

export function isAlive(identity: ProcessIdentity): boolean {
  if (identity.bootId !== readBootId()) return false;
  const entry = readProcess(identity.pid);
  return entry !== undefined && !entry.isDead && entry.startTicks === identity.startTicks;
}

/** Does nothing if the process is gone, or is another one by now. */
export function signalProcess(
  { pid, startTicks }: Pick<ProcessEntry, 'pid' | 'startTicks'>,
  signal: NodeJS.Signals,
): void {
  try {
    if (readProcess(pid)?.startTicks === startTicks) process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}

/** All of the leader's session, and all that descend from it; the leader too, while it lives. */
export function findBeneath(
  leader: ProcessIdentity,
  processes: readonly ProcessEntry[],
): ProcessEntry[] {
  if (!isAlive(leader)) return [];
  const found = new Set([leader.pid]);
  let before = 0;
  while (found.size > before) {
    before = found.size;
    for (const { pid, parentPid, sessionId } of processes) {
      if (found.has(parentPid) || sessionId === leader.pid) found.add(pid);
    }
  }
  return processes.filter(({ isDead, pid }) => found.has(pid) && !isDead);
}

/** Those that were given the variable, and kept it. Of other users' processes nothing is known. */
export function findByVariable(
  name: string,
  value: string,
  processes: readonly ProcessEntry[],
): ProcessEntry[] {
  const wanted = `\0${name}=${value}\0`;
  return processes.filter((entry) => {
    if (entry.isDead) return false;
    try {
      return `\0${readFileSync(`/proc/${entry.pid}/environ`, 'latin1')}\0`.includes(wanted);
    } catch {
      return false;
    }
  });
}

/** The program and its arguments; empty if it is gone. */
export function readCommandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
  } catch {
    return '';
  }
}

/** Memory that it has now; 0 if it is gone. */
export function readResidentBytes(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * 1_024;
  } catch {
    return 0;
  }
}
