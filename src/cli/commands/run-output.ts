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

/** Standard output and the log, which all jobs share. */
export class RunOutput {
  readonly #format: 'lines' | 'events';
  #written: Promise<void> = Promise.resolve();
  #isBroken = false;
  #broken: () => void = () => {};

  constructor({ format }: RunOutputOptions) {
    this.#format = format;
    // The reader has exited, as `head` does.
    process.stdout.on('error', () => {
      this.#isBroken = true;
      this.#broken();
    });
  }

  get format(): 'lines' | 'events' {
    return this.#format;
  }

  /** Everything printed so far is written. */
  get written(): Promise<void> {
    return this.#written;
  }

  /** `index`: that of the job's input, if there are several; each line names it then. */
  openJob(index?: number): JobOutput {
    return new JobOutput(this, index);
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
      if (line !== '') this.print(`{"type":"log","entry":${line}}`);
    }
  }

  print(line: string): void {
    if (this.#isBroken) return;
    this.#written = Promise.all([this.#written, print(`${line}\n`)]).then(() => {});
  }
}

/** What one job prints. */
export class JobOutput {
  readonly sink: ExecutionSink;
  readonly #output: RunOutput;
  readonly #index: number | undefined;
  readonly #joiner = new ChunkJoiner();
  #delivered: (bytes: number) => void = () => {};
  #chunks = 0;

  constructor(output: RunOutput, index: number | undefined) {
    this.#output = output;
    this.#index = index;
    this.sink = {
      chunks: (message) => this.#showChunks(message),
      progress: (value) => this.#showProgress(value),
      // The executor's log destination receives these lines too, together with those of the setup.
      log: () => {},
    };
  }

  onDelivered(listener: (bytes: number) => void): void {
    this.#delivered = listener;
  }

  /** Prints the outcome; resolves when everything is written. */
  async finish({ outcome, output }: ExecutionEnd): Promise<void> {
    if (this.#output.format === 'events') this.#print(describeEnd(outcome, output));
    else if (outcome.kind !== 'completed') this.#note(explainEnd(outcome));
    else if (output && this.#chunks === 0) this.#printValue(Buffer.from(output).toString());
    await this.#output.written;
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
      if (this.#output.format === 'lines') this.#printValue(JSON.stringify(chunk.output));
      else this.#print(JSON.stringify({ type: 'chunk', ...chunk }));
    }
    void this.#output.written.then(() => this.#delivered(bytes.length));
  }

  #showProgress(value: Uint8Array): void {
    const json = Buffer.from(value).toString();
    if (this.#output.format === 'events') this.#print(`{"type":"progress","value":${json}}`);
    else this.#note(`progress: ${json}`);
  }

  #printValue(json: string): void {
    this.#output.print(
      this.#index === undefined ? json : `{"index":${this.#index},"output":${json}}`,
    );
  }

  /** `event`: JSON of an object. */
  #print(event: string): void {
    const index = this.#index === undefined ? '' : `,"index":${this.#index}`;
    this.#output.print(`${event.slice(0, -1)}${index}}`);
  }

  #note(text: string): void {
    printNote(this.#index === undefined ? `${text}\n` : `[${this.#index}] ${text}\n`);
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
