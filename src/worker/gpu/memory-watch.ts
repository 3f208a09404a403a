// Detects device memory that is never released: held after the process of a job has ended, or
// growing from job to job. Pure. In a container nvidia-smi names no processes, so only byte counts
// are judged.

/** Jobs of one worker process. */
export interface JobActivity {
  /** Identifies the process. */
  readonly incarnation: number;
  /** Jobs that run now. */
  readonly running: number;
  /** Jobs that ended in this process. */
  readonly ended: number;
}

/** One reading of a device. */
export interface MemorySample {
  /** Memory in use on the device; undefined: not reported. */
  usedBytes: number | undefined;
  /**
   * Activity of the process on the device at the start and end of the reading; undefined without a
   * process.
   */
  before: JobActivity | undefined;
  after: JobActivity | undefined;
}

export interface MemoryPolicy {
  /** Memory over the baseline that drivers and neighbours may use, bytes. */
  heldBytes: number;
  /** Number of samples in a row that must each be larger than the previous one. */
  steps: number;
  /** The same for a process that is never seen idle, whose samples are less certain. */
  busySteps: number;
  /** Least growth that counts, bytes. */
  minStepBytes: number;
  /** Growth since the first sample at which the process is replaced; undefined: never. */
  recycleAtBytes?: number | undefined;
}

export const DEFAULT_MEMORY_POLICY: MemoryPolicy = {
  heldBytes: 256 * 2 ** 20,
  steps: 5,
  busySteps: 10,
  minStepBytes: 2 ** 20,
};

export interface Growth {
  jobs: number;
  /** Mean over these jobs. */
  bytesPerJob: number;
  /** Since the first sample of the process. */
  grownBytes: number;
}

export type MemoryFinding =
  /** More memory in use than before our first process, while no process runs. */
  | { name: 'held'; heldBytes: number }
  /** The held memory is free again. */
  | { name: 'freed' }
  /** Each of the last samples was larger; reported once per process. */
  | ({ name: 'growing' } & Growth)
  /** Over the limit: replace the process between jobs; reported once per process. */
  | ({ name: 'recycle' } & Growth);

interface Level {
  readonly usedBytes: number;
  readonly ended: number;
}

interface Series {
  readonly first: Level;
  /** Newest last. */
  readonly last: readonly Level[];
}

/** Readings during which the process was always busy, until one more job has ended. */
interface BusyStretch {
  readonly readings: number;
  readonly leastBytes: number;
  readonly endedBefore: number;
}

interface ProcessMemory {
  readonly incarnation: number;
  readonly ended: number;
  readonly idle: Series | undefined;
  readonly busy: Series | undefined;
  readonly stretch: BusyStretch | undefined;
  readonly isGrowthReported: boolean;
  readonly isRecycled: boolean;
}

export interface MemoryHistory {
  /** In use before our first process; undefined if not measured. */
  readonly baselineBytes: number | undefined;
  readonly hasRun: boolean;
  readonly isHeld: boolean;
  /** The last process that was seen. */
  readonly process: ProcessMemory | undefined;
}

/** `baselineBytes` is measured before the first process starts. */
export function startMemory(baselineBytes: number | undefined): MemoryHistory {
  return { baselineBytes, hasRun: false, isHeld: false, process: undefined };
}

interface MemoryJudgement {
  history: MemoryHistory;
  sample: MemorySample;
  policy: MemoryPolicy;
}

/** Returns the history after one more sample, and its finding. */
export function judgeMemory({ history, sample, policy }: MemoryJudgement): {
  history: MemoryHistory;
  finding?: MemoryFinding;
} {
  const { usedBytes, before, after } = sample;
  if (usedBytes === undefined) return { history };
  if (!before && !after) return judgeHeld(history, usedBytes, policy);
  // A process ended or began during the reading: the bytes cannot be attributed.
  if (!before || !after || before.incarnation !== after.incarnation) {
    return { history: { ...history, hasRun: true } };
  }
  const known = history.process;
  const process = known?.incarnation === after.incarnation ? known : startProcess(after);
  const noted = noteSample(process, usedBytes, before, after, policy);
  const { next, finding } = judgeProcess(noted, policy);
  return {
    history: { ...history, hasRun: true, isHeld: false, process: next },
    ...(finding && { finding }),
  };
}

function judgeHeld(
  history: MemoryHistory,
  usedBytes: number,
  policy: MemoryPolicy,
): ReturnType<typeof judgeMemory> {
  // Before the first process, the memory in use belongs to others.
  const baselineBytes = history.baselineBytes ?? (history.hasRun ? undefined : usedBytes);
  const heldBytes = baselineBytes === undefined ? 0 : usedBytes - baselineBytes;
  const isHeld = heldBytes > policy.heldBytes;
  const next = { ...history, baselineBytes, isHeld };
  if (isHeld === history.isHeld) return { history: next };
  return { history: next, finding: isHeld ? { name: 'held', heldBytes } : { name: 'freed' } };
}

function startProcess({ incarnation }: JobActivity): ProcessMemory {
  return {
    incarnation,
    ended: 0,
    idle: undefined,
    busy: undefined,
    stretch: undefined,
    isGrowthReported: false,
    isRecycled: false,
  };
}

/** A process that is never idle is judged by its lowest use over this many readings. */
const BUSY_READINGS = 6;

function noteSample(
  process: ProcessMemory,
  usedBytes: number,
  before: JobActivity,
  after: JobActivity,
  policy: MemoryPolicy,
): ProcessMemory {
  const isIdle = before.running === 0 && after.running === 0 && before.ended === after.ended;
  if (isIdle) {
    const idle = { ...process, stretch: undefined };
    if (after.ended <= process.ended) return idle;
    const level = { usedBytes, ended: after.ended };
    return { ...idle, ended: after.ended, idle: append(process.idle, level, policy.steps) };
  }
  const { stretch } = process;
  const readings = (stretch?.readings ?? 0) + 1;
  const leastBytes = Math.min(stretch?.leastBytes ?? usedBytes, usedBytes);
  const endedBefore = stretch?.endedBefore ?? before.ended;
  if (readings < BUSY_READINGS || after.ended <= endedBefore) {
    return { ...process, stretch: { readings, leastBytes, endedBefore } };
  }
  const level = { usedBytes: leastBytes, ended: after.ended };
  const busy = append(process.busy, level, policy.busySteps);
  return { ...process, ended: after.ended, stretch: undefined, busy };
}

/** Keeps one more than the judged steps. */
function append(series: Series | undefined, level: Level, steps: number): Series {
  const last = [...(series?.last ?? []), level].slice(-(steps + 1));
  return { first: series?.first ?? level, last };
}

function judgeProcess(
  process: ProcessMemory,
  policy: MemoryPolicy,
): { next: ProcessMemory; finding?: MemoryFinding } {
  const { recycleAtBytes = Number.POSITIVE_INFINITY } = policy;
  const idle = measureGrowth(process.idle, policy.steps, policy.minStepBytes);
  const busy = measureGrowth(process.busy, policy.busySteps, policy.minStepBytes);
  const isPast = (growth: Growth | undefined) => (growth?.grownBytes ?? 0) >= recycleAtBytes;
  // Running jobs use different amounts: busy samples count only if they grew steadily.
  const past = isPast(idle) ? idle : busy?.isSteady && isPast(busy) ? busy : undefined;
  if (past && !process.isRecycled) {
    const next = { ...process, isRecycled: true, isGrowthReported: true };
    return { next, finding: { name: 'recycle', ...describe(past) } };
  }
  const growing = [idle, busy].find((growth) => growth?.isSteady);
  if (!growing || process.isGrowthReported) return { next: process };
  return {
    next: { ...process, isGrowthReported: true },
    finding: { name: 'growing', ...describe(growing) },
  };
}

function describe({ jobs, bytesPerJob, grownBytes }: Growth): Growth {
  return { jobs, bytesPerJob, grownBytes };
}

/** Undefined before the second sample. `isSteady`: every one of the last steps grew. */
function measureGrowth(
  series: Series | undefined,
  steps: number,
  minStepBytes: number,
): (Growth & { isSteady: boolean }) | undefined {
  const [oldest, newest] = [series?.last[0], series?.last.at(-1)];
  if (!series || !oldest || !newest || oldest === newest) return undefined;
  const rises = series.last
    .slice(1)
    .map((level, place) => level.usedBytes - (series.last[place] ?? level).usedBytes);
  const jobs = newest.ended - oldest.ended;
  return {
    jobs,
    bytesPerJob: Math.round((newest.usedBytes - oldest.usedBytes) / Math.max(1, jobs)),
    grownBytes: newest.usedBytes - series.first.usedBytes,
    isSteady: rises.length >= steps && rises.every((bytes) => bytes >= minStepBytes),
  };
}
