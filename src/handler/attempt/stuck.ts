// Describes where an attempt was when it timed out or was stopped: its output so far and its code
// position.
import { getHeapStatistics } from 'node:v8';
import type { StuckPlace } from '../../wire/job/job.ts';
import { elapsedTime, max, measureLoop, min, round } from '../../wire/primordials.ts';

/** Counts the chunks of one attempt as they are sent. */
export class ChunkHistory {
  readonly #now: () => number;
  #count = 0;
  #lastAt = 0;

  /** A clock in ms with any origin. */
  constructor(now: () => number) {
    this.#now = now;
  }

  add(count: number): void {
    this.#count += count;
    this.#lastAt = this.#now();
  }

  describe(): Pick<StuckPlace, 'chunks' | 'lastChunkMs'> {
    if (this.#count === 0) return { chunks: 0 };
    return {
      chunks: this.#count,
      lastChunkMs: max(0, round(this.#now() - this.#lastAt)),
    };
  }
}

/** The chunks of an attempt that runs in the calling thread. */
export class RunHistory extends ChunkHistory {
  readonly #loopAtStart = measureLoop();

  constructor() {
    super(elapsedTime);
  }

  /** State that the attempt's own thread records. */
  locate(state: StuckPlace['state']): StuckPlace {
    const { utilization } = measureLoop(this.#loopAtStart);
    return {
      state,
      ...this.describe(),
      eventLoopUtilization: roundShare(utilization),
      heapUsedBytes: getHeapStatistics().used_heap_size,
    };
  }
}

/** Rounds to two decimals. */
export function roundShare(share: number): number {
  return round(min(1, max(0, share)) * 100) / 100;
}

/** A short phrase for logs and messages. */
export function describePlace({ state, stack }: Pick<StuckPlace, 'state' | 'stack'>): string {
  switch (state) {
    case 'waiting':
      return 'the handler was waiting, none of its code was running';
    case 'unreachable':
      return 'its thread did not respond: in native code, in garbage collection, or short of CPU time';
    case 'running': {
      const innermost = stack?.split('\n', 1)[0]?.trim();
      return innermost === undefined
        ? 'code of the handler was running'
        : `it was running ${innermost}`;
    }
  }
}
