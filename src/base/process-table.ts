// The machine's processes as /proc tells of them: who lives, whose child it is, and to what container
// it belongs. A number alone says nothing: it is given again to another one when its process is gone.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

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

export function readBootId(): string {
  bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return bootId;
}

/** The line of /proc that a process is known by. @throws Error if there is no such process */
export function readStat(pid: number): string {
  return readFileSync(`/proc/${pid}/stat`, 'utf8');
}

/** Undefined if there is no such process. */
export function readProcess(pid: number): ProcessEntry | undefined {
  try {
    return parseStat(readStat(pid));
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

/** These that live, all that descend from them, and all of the sessions that they lead. */
export function findBeneath(
  roots: ReadonlySet<number>,
  processes: readonly ProcessEntry[],
): ProcessEntry[] {
  // Members of control groups that this process cannot see have the number 0, the parent of all is 1.
  const found = new Set([...roots].filter((pid) => pid > 1 && pid !== process.pid));
  let before = 0;
  while (found.size > before) {
    before = found.size;
    for (const { pid, parentPid, sessionId } of processes) {
      if (found.has(parentPid) || found.has(sessionId)) found.add(pid);
    }
  }
  return processes.filter(({ isDead, pid }) => found.has(pid) && !isDead);
}

export interface Marked {
  found: ProcessEntry[];
  /** In the middle of starting a program: for that moment nobody can tell whose they are. */
  unknown: ProcessEntry[];
}

/**
 * Those that were given the variable, and kept it. A value that ends with a slash stands for all that begin
 * with it. Of other users' processes nothing is known, unless this is root's.
 */
export function findByVariable(
  name: string,
  value: string,
  processes: readonly ProcessEntry[],
): Marked {
  const wanted = `\0${name}=${value}${value.endsWith('/') ? '' : '\0'}`;
  const marked: Marked = { found: [], unknown: [] };
  for (const entry of processes) {
    if (entry.isDead) continue;
    const environment = readEnvironment(entry.pid);
    if (environment === undefined) marked.unknown.push(entry);
    else if (`\0${environment}\0`.includes(wanted)) marked.found.push(entry);
  }
  return marked;
}

/** Undefined in the middle of starting a program; empty of one that is gone or another user's. */
function readEnvironment(pid: number): string | undefined {
  const read = () => readText(`/proc/${pid}/environ`);
  const first = read();
  // It may have come to its end while it was looked at.
  return first === '' && isInExec(pid) ? undefined : first || read();
}

/** For that moment it has neither arguments nor variables. */
function isInExec(pid: number): boolean {
  if (readCommandLine(pid) !== '') return false;
  try {
    // The kernel's own threads run no file.
    return readlinkSync(`/proc/${pid}/exe`) !== '';
  } catch {
    return false;
  }
}

/** The program and its arguments; empty if it is gone. */
export function readCommandLine(pid: number): string {
  return readText(`/proc/${pid}/cmdline`);
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'latin1');
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
