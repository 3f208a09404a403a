// Reads the machine's processes from /proc: which run, their parents and their variables. A process
// ID alone identifies nothing, because the kernel reuses it.
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** Identifies one process; a later process with the same ID differs in `startTicks`. */
export interface ProcessIdentity {
  pid: number;
  /** Start time in the kernel's ticks since `bootId`. */
  startTicks: string;
  /** ID of the machine's current boot. */
  bootId: string;
}

export interface ProcessEntry {
  pid: number;
  parentPid: number;
  sessionId: number;
  startTicks: string;
  /** The process is a zombie or exits: it no longer runs code. */
  isDead: boolean;
  /** Processor time of the process and of the children that it waited for, ticks. */
  cpuTicks: number;
}

/** Ticks per second; the same on every Linux on which Node runs. */
export const TICKS_PER_SECOND = 100;

let bootId: string | undefined;

export function readBootId(): string {
  bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return bootId;
}

/** Returns the process's line in /proc/PID/stat. @throws Error if the process does not exist */
export function readStat(pid: number): string {
  return readFileSync(`/proc/${pid}/stat`, 'utf8');
}

/** Undefined if the process does not exist. */
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

/**
 * Parses a line of /proc/PID/stat. The second field, the program's name, may contain spaces and
 * parentheses.
 */
export function parseStat(line: string): ProcessEntry | undefined {
  const pid = Number.parseInt(line, 10);
  const fields = splitStat(line);
  const startTicks = fields[19];
  if (!Number.isSafeInteger(pid) || startTicks === undefined) return undefined;
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

/** Place in the fields of `splitStat`: 0 without a program, 1 if this process may not know it. */
const END_OF_CODE = 24;

/** Fields after the program's name; empty for an invalid line. */
function splitStat(line: string): string[] {
  const afterName = line.lastIndexOf(')');
  return afterName === -1 ? [] : line.slice(afterName + 2).split(' ');
}

export function isAlive(identity: ProcessIdentity): boolean {
  if (identity.bootId !== readBootId()) return false;
  const entry = readProcess(identity.pid);
  return entry !== undefined && !entry.isDead && entry.startTicks === identity.startTicks;
}

/** Does nothing if the process has ended, even if another one has its ID now. */
export function signalProcess(
  { pid, startTicks }: Pick<ProcessEntry, 'pid' | 'startTicks'>,
  signal: NodeJS.Signals,
): void {
  try {
    if (readProcess(pid)?.startTicks === startTicks) process.kill(pid, signal);
  } catch {
    // The process has ended.
  }
}

/**
 * Returns the living processes of `roots`, their descendants, and all processes of sessions that
 * they lead.
 */
export function findBeneath(
  roots: ReadonlySet<number>,
  processes: readonly ProcessEntry[],
): ProcessEntry[] {
  // ID 0 stands for members of control groups that this process cannot see; ID 1 is the parent of
  // all.
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
  /** Processes that are starting a program: their variables cannot be read at this moment. */
  unknown: ProcessEntry[];
}

/**
 * Returns the processes that have the variable. A value that ends with a slash matches every value
 * that begins with it. Processes of other users are visible only to root.
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

/** Undefined while the process starts a program; empty if it has ended or belongs to another user. */
function readEnvironment(pid: number): string | undefined {
  const read = () => readText(`/proc/${pid}/environ`);
  const first = read();
  // The process may have ended between the two reads.
  return first === '' && isInExec(pid) ? undefined : first || read();
}

/**
 * Whether the process is in execve. The kernel places the arguments, then the variables, and only
 * then notes where the program's code ends.
 */
function isInExec(pid: number): boolean {
  try {
    if (splitStat(readStat(pid))[END_OF_CODE] !== '0') return false;
    // Threads of the kernel have no executable.
    return readlinkSync(`/proc/${pid}/exe`) !== '';
  } catch {
    return false;
  }
}

/** Returns the program and its arguments; empty if the process has ended. */
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

/** Returns the resident memory; 0 if the process has ended. */
export function readResidentBytes(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0) * 1_024;
  } catch {
    return 0;
  }
}
