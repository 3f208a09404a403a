// Prints the chunks, output, progress and log of `millrace run`: for a person at a terminal, as lines
// of JSON, or as events for programs. It reports when chunks are written, so that the generator can wait.
import { styleText } from 'node:util';
import { escapeControls } from '../../base/text/printable.ts';
import type { Chunk, Metrics } from '../../wire/chunk/chunk.ts';
import { ChunkJoiner } from '../../wire/chunk/chunk-pieces.ts';
import type { Outcome } from '../../wire/link/worker-link.ts';
import type { ChunkMessage, ExecutionEnd, ExecutionSink } from '../../worker/execution/executor.ts';
import { outliveOutput, print, printNote, printStyled, showOwnStack } from '../output.ts';
import { showLogLines } from '../terminal-log.ts';

/**
 * `terminal`: values with their metrics, then what the generator returned and the times. `lines`: each value as one
 * line of JSON.
 */
export type RunFormat = 'terminal' | 'lines' | 'events';

const STATUSES: Readonly<Record<Outcome['kind'], string>> = {
  completed: 'COMPLETED',
  failed: 'FAILED',
  timed_out: 'TIMED_OUT',
  cancelled: 'CANCELLED',
  released: 'FAILED',
  waiting: 'FAILED',
};

/** Standard output and the log, which all jobs share. */
export class RunOutput {
  readonly format: RunFormat;
  /** Time in which the handler was loaded and set up, ms; undefined until then. */
  loadMs: number | undefined;
  #written: Promise<void> = Promise.resolve();
  #isBroken = false;
  #broken: () => void = () => {};

  constructor(format: RunFormat) {
    this.format = format;
    // The reader has exited, as `head` does.
    outliveOutput(() => {
      this.#isBroken = true;
      this.#broken();
    });
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
    if (this.format !== 'events') {
      showLogLines(lines);
      return;
    }
    for (const line of Buffer.from(lines).toString().split('\n')) {
      if (line !== '') this.print(`{"type":"log","entry":${line}}`);
    }
  }

  print(line: string): void {
    this.#write(print, line);
  }

  /** The caller has escaped all untrusted parts. */
  printStyled(line: string): void {
    this.#write(printStyled, line);
  }

  #write(write: (text: string) => Promise<void>, line: string): void {
    if (this.#isBroken) return;
    this.#written = Promise.all([this.#written, write(`${line}\n`)]).then(() => {});
  }
}

/** What one job prints. */
class JobOutput {
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
    const { format, loadMs } = this.#output;
    if (format === 'events') {
      this.#print(describeEnd(outcome, output, { chunks: this.#chunks, loadMs }));
    } else {
      if (outcome.kind !== 'completed') this.#note(explainEnd(outcome));
      else if (output) this.#printOutput(Buffer.from(output).toString());
      if (format === 'terminal') this.#printSummary(outcome);
    }
    await this.#output.written;
  }

  /** A returned value. After chunks it is named, because it is none of them. */
  #printOutput(json: string): void {
    if (this.#output.format === 'terminal') {
      this.#printValue(this.#chunks === 0 ? json : `returned ${json}`);
    } else if (this.#index !== undefined && this.#chunks > 0) {
      this.#output.print(`{"index":${this.#index},"returned":${json}}`);
    } else this.#printValue(json);
  }

  #printSummary(outcome: Outcome): void {
    const { loadMs = 0 } = this.#output;
    const ran = `${STATUSES[outcome.kind]} in ${Math.round(readMs(outcome))} ms`;
    const count = this.#chunks;
    const chunks = count === 0 ? '' : `, ${count} ${count === 1 ? 'chunk' : 'chunks'}`;
    this.#note(`${ran}${chunks}; the handler was loaded in ${Math.round(loadMs)} ms`);
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
      if (this.#output.format === 'events')
        this.#print(JSON.stringify({ type: 'chunk', ...chunk }));
      else this.#printValue(JSON.stringify(chunk.output), chunk.metrics);
    }
    void this.#output.written.then(() => this.#delivered(bytes.length));
  }

  #showProgress(value: Uint8Array): void {
    const json = Buffer.from(value).toString();
    if (this.#output.format === 'events') this.#print(`{"type":"progress","value":${json}}`);
    else this.#note(`progress: ${json}`);
  }

  #printValue(json: string, metrics: Metrics = {}): void {
    if (this.#output.format === 'terminal') {
      const prefix = this.#index === undefined ? '' : `[${this.#index}] `;
      const figures = Object.entries(metrics).map(([name, value]) => `  ${name}=${value}`);
      const shown = escapeControls(figures.join(''));
      this.#output.printStyled(
        `${prefix}${escapeControls(json)}${shown === '' ? '' : styleText('gray', shown)}`,
      );
      return;
    }
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

function readMs(outcome: Outcome): number {
  return 'executionMs' in outcome ? outcome.executionMs : 0;
}

function describeEnd(
  outcome: Outcome,
  output: Uint8Array | undefined,
  { chunks, loadMs = 0 }: { chunks: number; loadMs: number | undefined },
): string {
  const executionTime = Math.round(readMs(outcome));
  const loadTime = Math.round(loadMs);
  const status = STATUSES[outcome.kind];
  const error = 'error' in outcome ? { error: outcome.error } : {};
  const head = { type: 'result', status, executionTime, loadTime, chunks };
  const text = JSON.stringify({ ...head, ...error });
  if (!output) return text;
  return `${text.slice(0, -1)},"output":${Buffer.from(output).toString()}}`;
}

function explainEnd(outcome: Outcome): string {
  if (outcome.kind === 'cancelled') return 'millrace run: the job was cancelled';
  if (!('error' in outcome)) return 'millrace run: the job did not run';
  const { code, message, stack } = outcome.error;
  const shown = stack === undefined ? undefined : showOwnStack(stack, { folder: process.cwd() });
  const own = shown?.includes(message) ? shown : [message, shown].filter(Boolean).join('\n');
  return `millrace run: ${STATUSES[outcome.kind]} (${code}): ${own}`;
}
