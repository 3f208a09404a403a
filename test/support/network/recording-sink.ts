// Records what a running attempt sends, in the forms that tests need.
import type { Chunk } from '../../../src/wire/chunk/chunk.ts';
import type { ChunkMessage, ExecutionSink } from '../../../src/worker/execution/executor.ts';

export interface LogLine {
  level: number;
  msg: string;
  job?: string;
  attempt?: number;
  [member: string]: unknown;
}

export class RecordingSink implements ExecutionSink {
  /** The chunks of each message. */
  readonly batches: Chunk[][] = [];
  readonly chunkSizes: number[] = [];
  readonly progressValues: unknown[] = [];
  readonly logLines: LogLine[] = [];
  droppedLines = 0;
  readonly #waiters = new Set<() => void>();

  get outputs(): unknown[] {
    return this.batches.flat().map(({ output }) => output);
  }

  readonly holds: boolean[] = [];

  get metrics(): Record<string, number>[] {
    return this.batches.flat().map(({ metrics }) => metrics);
  }

  chunks = ({ sizes, bytes }: ChunkMessage): void => {
    this.chunkSizes.push(...sizes);
    this.batches.push(JSON.parse(`[${Buffer.from(bytes).toString()}]`));
    this.#wake();
  };

  progress = (value: Uint8Array): void => {
    this.progressValues.push(JSON.parse(Buffer.from(value).toString()));
    this.#wake();
  };

  log = (lines: Uint8Array, dropped: number): void => {
    this.logLines.push(...parseLines(lines));
    this.droppedLines += dropped;
    this.#wake();
  };

  held = (isHeld: boolean): void => {
    this.holds.push(isHeld);
  };

  /** Resolves as soon as the recorded data meets the condition. */
  async until(isMet: (sink: RecordingSink) => boolean): Promise<void> {
    while (!isMet(this)) await new Promise<void>((resolve) => this.#waiters.add(resolve));
  }

  #wake(): void {
    for (const resolve of this.#waiters) resolve();
    this.#waiters.clear();
  }
}

export function parseLines(lines: Uint8Array): LogLine[] {
  const text = Buffer.from(lines).toString();
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}
