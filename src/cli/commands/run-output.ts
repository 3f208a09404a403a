// Prints the chunks, output, progress and log of `millrace run`, as lines or as events for
// programs. It reports when chunks are written, so that the generator can wait.

import type { Chunk } from '../../wire/chunk/chunk.ts';
import { ChunkJoiner } from '../../wire/chunk/chunk-joiner.ts';
import type { Outcome } from '../../wire/link/worker-link.ts';
import type { ChunkMessage, ExecutionEnd, ExecutionSink } from '../../worker/execution/executor.ts';
import { print, printNote } from '../output.ts';
import { showLogLines } from '../terminal-log.ts';

export interface RunOutputOptions {
  format: 'lines' | 'events';
}

const STATUSES: Readonly<Record<Outcome['kind'], string>> = {
  completed: 'COMPLETED',
  failed: 'FAILED',
  timed_out: 'TIMED_OUT',
  cancelled: 'CANCELLED',
  released: 'FAILED',
};

export class RunOutput {
  readonly sink: ExecutionSink;
  readonly #format: 'lines' | 'events';
  readonly #joiner = new ChunkJoiner();
  #written: Promise<void> = Promise.resolve();
  #isBroken = false;
  #delivered: (bytes: number) => void = () => {};
  #broken: () => void = () => {};
  #chunks = 0;

  constructor({ format }: RunOutputOptions) {
    this.#format = format;
    this.sink = {
      chunks: (message) => this.#showChunks(message),
      progress: (value) => this.#showProgress(value),
      // The executor's log destination receives these lines too, together with those of the setup.
      log: () => {},
    };
    // The reader has exited, as `head` does.
    process.stdout.on('error', () => {
      this.#isBroken = true;
      this.#broken();
    });
  }

  onDelivered(listener: (bytes: number) => void): void {
    this.#delivered = listener;
  }

  onBroken(listener: () => void): void {
    this.#broken = listener;
    if (this.#isBroken) listener();
  }

  /** NDJSON. */
  log(lines: Uint8Array): void {
    if (this.#format === 'lines') {
      showLogLines(lines);
      return;
    }
    for (const line of Buffer.from(lines).toString().split('\n')) {
      if (line !== '') this.#print(`{"type":"log","entry":${line}}`);
    }
  }

  /** Prints the outcome; resolves when everything is written. */
  async finish({ outcome, output }: ExecutionEnd): Promise<void> {
    if (this.#format === 'events') this.#print(describeEnd(outcome, output));
    else if (outcome.kind !== 'completed') printNote(`${explainEnd(outcome)}\n`);
    else if (output && this.#chunks === 0) this.#print(Buffer.from(output).toString());
    await this.#written;
  }

  #showChunks({ bytes, sizes }: ChunkMessage): void {
    let at = 0;
    for (const size of sizes) {
      // The executor encoded these bytes as the JSON of one chunk.
      const piece = JSON.parse(Buffer.from(bytes.subarray(at, at + size)).toString()) as Chunk;
      at += size + 1;
      const chunk = this.#joiner.push(piece);
      if (!chunk) continue;
      this.#chunks += 1;
      if (this.#format === 'lines') this.#print(JSON.stringify(chunk.output));
      else this.#print(JSON.stringify({ type: 'chunk', ...chunk }));
    }
    void this.#written.then(() => this.#delivered(bytes.length));
  }

  #showProgress(value: Uint8Array): void {
    const json = Buffer.from(value).toString();
    if (this.#format === 'events') this.#print(`{"type":"progress","value":${json}}`);
    else printNote(`progress: ${json}\n`);
  }

  #print(line: string): void {
    if (this.#isBroken) return;
    this.#written = Promise.all([this.#written, print(`${line}\n`)]).then(() => {});
  }
}

function describeEnd(outcome: Outcome, output: Uint8Array | undefined): string {
  const executionTime = 'executionMs' in outcome ? Math.round(outcome.executionMs) : 0;
  const status = STATUSES[outcome.kind];
  const error = 'error' in outcome ? { error: outcome.error } : {};
  const text = JSON.stringify({ type: 'result', status, executionTime, ...error });
  if (!output) return text;
  return `${text.slice(0, -1)},"output":${Buffer.from(output).toString()}}`;
}

function explainEnd(outcome: Outcome): string {
  if (outcome.kind === 'cancelled') return 'millrace run: the job was cancelled';
  if (!('error' in outcome)) return 'millrace run: the job did not run';
  const { code, message, stack } = outcome.error;
  const own = stack?.includes(message) ? stack : [message, stack].filter(Boolean).join('\n');
  return `millrace run: ${STATUSES[outcome.kind]} (${code}): ${own}`;
}
