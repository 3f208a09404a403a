// Decides what a worker does about the memory of its process. Pure; memory-guard.ts measures and
// acts.

/** From this share of the limit on, the process is replaced: a new one uses less. */
const HIGH_SHARE = 0.8;

export interface MemoryUse {
  /** Resident memory of the process. */
  rssBytes: number;
  limitBytes: number;
  /** Attempts whose handler runs. */
  running: number;
  /** Attempts that have or will have a slot. */
  active: number;
  /** Attempts that have ended in this process. */
  ended: number;
}

/**
 * `hold`: take nothing until memory is freed or nothing runs. `recycle`: replace the process.
 * `stop`: the only running attempt has used too much. `suspect`: one of several running attempts
 * has, or one that has ended.
 */
export type MemoryAction = 'none' | 'hold' | 'recycle' | 'stop' | 'suspect';

/** The previous measurement and its action. */
export interface EarlierMeasurement {
  use: MemoryUse;
  action: MemoryAction;
}

export function decideOnMemory(use: MemoryUse, earlier?: EarlierMeasurement): MemoryAction {
  const { rssBytes, limitBytes, running, active, ended } = use;
  if (!isHigh(use)) return 'none';
  // If the process has run nothing yet, a new process would use as much memory.
  if (active === 0) return ended > 0 ? 'recycle' : 'none';
  if (rssBytes <= limitBytes || running === 0) return 'hold';
  return running === 1 && isToBlame(use, earlier) ? 'stop' : 'suspect';
}

/**
 * An attempt is not to blame for memory that was in use before it, or that another attempt used.
 */
function isToBlame({ ended }: MemoryUse, earlier: EarlierMeasurement | undefined): boolean {
  if (!earlier) return true;
  const { use, action } = earlier;
  if (use.ended !== ended || use.running > 1) return false;
  return action === 'stop' || use.rssBytes <= use.limitBytes;
}

export function isHigh({ rssBytes, limitBytes }: MemoryUse): boolean {
  return rssBytes > limitBytes * HIGH_SHARE;
}

const MB = 1_048_576;

export function describeExcess({ rssBytes, limitBytes }: MemoryUse): string {
  const [rssMb, limitMb] = [rssBytes, limitBytes].map((bytes) => Math.round(bytes / MB));
  return `the process uses ${rssMb} MB of memory, the limit is ${limitMb} MB`;
}
