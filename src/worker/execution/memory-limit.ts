// What a worker does about the memory of its process: a pure decision. Measuring and acting on it is
// memory-guard.ts's.

/** From here on, the next process starts with less. */
const HIGH_SHARE = 0.8;

export interface MemoryUse {
  /** Resident memory of the process. */
  rssBytes: number;
  limitBytes: number;
  /** Attempts whose handler runs. */
  running: number;
  /** Attempts that have or will have a slot. */
  active: number;
  /** Attempts that came to an end in this process. */
  ended: number;
}

/**
 * `none`: all is well. `hold`: nothing more is taken until it is well or nothing runs. `recycle`: a
 * fresh process is to take over. `stop`: the only attempt that runs has taken too much. `suspect`: one
 * of several has, or one that has ended.
 */
export type MemoryAction = 'none' | 'hold' | 'recycle' | 'stop' | 'suspect';

/** The look before, and what came of it. */
export interface EarlierLook {
  use: MemoryUse;
  action: MemoryAction;
}

export function decideOnMemory(use: MemoryUse, earlier?: EarlierLook): MemoryAction {
  const { rssBytes, limitBytes, running, active, ended } = use;
  if (!isHigh(use)) return 'none';
  // A process that has run nothing yet takes what the next one would take too.
  if (active === 0) return ended > 0 ? 'recycle' : 'none';
  if (rssBytes <= limitBytes || running === 0) return 'hold';
  return running === 1 && isToBlame(use, earlier) ? 'stop' : 'suspect';
}

/** Not for what it found when it began, and not for what another one took beside it. */
function isToBlame({ ended }: MemoryUse, earlier: EarlierLook | undefined): boolean {
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
