// `millrace jobs submit --each`: submits one job for each line of a file, many with each request.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { iterateLines } from '../../base/text/line-reader.ts';
import {
  ApiError,
  type Client,
  type NewJob,
  type SubmitResult,
  UnreachableError,
} from '../../client.ts';
import { EXIT } from '../command.ts';
import { UsageError } from '../options.ts';
import { noteFailedOutput, outliveOutput, print, printNote, StatusLine } from '../output.ts';
import { parseObject } from '../resources/request-body.ts';

type LineJob = NewJob<object>;

interface EachSubmission {
  client: Client;
  /** `-`: standard input. */
  file: string;
  /** Of every job. */
  options: Omit<LineJob, 'input' | 'idempotencyKey'>;
  /** Start of the key of each job; default: a new one. */
  idempotencyKey: string | undefined;
  json: boolean;
}

/** Statuses of a refusal that is about one job. */
const ABOUT_ONE_JOB: ReadonlySet<number> = new Set([400, 409, 413, 422]);

const SHOW_EVERY_JOBS = 100;

/** Returns the exit code. @throws UsageError if the file cannot be read */
export async function submitEach(submission: EachSubmission): Promise<number> {
  const { client, file, json, options } = submission;
  // A request that is repeated starts no second job.
  const { idempotencyKey: key = randomUUID() } = submission;
  const lines = readLines(await openSource(file), file);
  const report = new Report(json);
  outliveOutput((error) => report.loseOutput(error));
  await client.runMany(readJobs(lines, { options, report, key }), {
    onProgress: ({ index, result }) => report.add(index, result),
  });
  return report.finish();
}

async function openSource(file: string): Promise<Readable> {
  if (file === '-') return process.stdin;
  const source = createReadStream(file);
  try {
    await once(source, 'open');
  } catch (error) {
    throw refuseFile(file, error);
  }
  return source;
}

/** @throws UsageError: a folder, for example, can be opened but not read */
async function* readLines(source: Readable, file: string): AsyncGenerator<string> {
  try {
    yield* iterateLines(source);
  } catch (error) {
    throw refuseFile(file, error);
  }
}

function refuseFile(file: string, error: unknown): UsageError {
  return new UsageError(`--each: ${file} cannot be read: ${describe(error)}`);
}

/** Reports the lines that are no JSON object, and goes on with the others; empty lines are no jobs. */
async function* readJobs(
  lines: AsyncIterable<string>,
  { key, options, report }: { key: string; options: EachSubmission['options']; report: Report },
): AsyncGenerator<LineJob> {
  let line = 0;
  for await (const text of lines) {
    line++;
    if (report.isOver) return report.stopBefore(line);
    if (text.trim() === '') continue;
    try {
      const input = parseObject(`line ${line}`, text);
      report.expect(line);
      yield { input, ...options, idempotencyKey: `${key}-${line}` };
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      report.refuseLine(line, error.message);
    }
  }
}

/** Prints the results in the order of the lines, then how many there were. */
class Report {
  readonly #json: boolean;
  /** Shown only if the results are not on the same terminal. */
  readonly #status = new StatusLine();
  /** Line of each job, by its index; printed ones are forgotten. */
  readonly #lines = new Map<number, number>();
  readonly #results = new Map<number, SubmitResult>();
  #jobs = 0;
  #printed = 0;
  #submitted = 0;
  #refused = 0;
  #isOver = false;
  #lost: Error | undefined;
  /** First line that is not submitted, because the platform refuses every job. */
  #stoppedBefore: number | undefined;

  constructor(json: boolean) {
    this.#json = json;
  }

  /** The platform refuses every job. */
  get isOver(): boolean {
    return this.#isOver;
  }

  stopBefore(line: number): void {
    this.#stoppedBefore = line;
  }

  /** The next job is of this line. */
  expect(line: number): void {
    this.#lines.set(this.#jobs++, line);
  }

  refuseLine(line: number, message: string): void {
    this.#refused++;
    this.#status.note(message);
    if (this.#json) this.#print(JSON.stringify({ line, error: { detail: message } }));
  }

  add(index: number, result: SubmitResult): void {
    this.#results.set(index, result);
    for (;;) {
      const next = this.#results.get(this.#printed);
      const line = this.#lines.get(this.#printed);
      if (!next || line === undefined) break;
      this.#results.delete(this.#printed);
      this.#lines.delete(this.#printed);
      this.#printed++;
      this.#show(line, next);
    }
    const done = this.#submitted + this.#refused;
    if (done % SHOW_EVERY_JOBS === 0) this.#showProgress();
  }

  #show(line: number, result: SubmitResult): void {
    if (result.status === 'fulfilled') {
      this.#submitted++;
      const { id, status } = result.value;
      this.#print(this.#json ? JSON.stringify({ line, id, status }) : `${id}  ${status}`);
      return;
    }
    const { reason } = result;
    this.#isOver ||= isOfAll(reason);
    this.#refused++;
    this.#status.note(`line ${line}: ${describe(reason)}`);
    const error = reason instanceof ApiError ? reason.problem : { detail: describe(reason) };
    if (this.#json) this.#print(JSON.stringify({ line, error }));
  }

  /** The jobs are what the caller wants: the submission goes on without a reader. */
  loseOutput(error: NodeJS.ErrnoException): void {
    if (error.code !== 'EPIPE') this.#lost ??= error;
  }

  finish(): number {
    this.#status.clear();
    if (this.#lost) noteFailedOutput(this.#lost);
    const refused = this.#refused;
    const line = this.#stoppedBefore;
    const end = line === undefined ? '' : `; stopped before line ${line}`;
    const count = `${this.#submitted} ${this.#submitted === 1 ? 'job' : 'jobs'} submitted`;
    printNote(`millrace jobs submit: ${count}, ${refused} refused${end}\n`);
    return refused === 0 && !this.#lost ? EXIT.ok : EXIT.failed;
  }

  #showProgress(): void {
    if (!this.#status.isTerminal || process.stdout.isTTY) return;
    this.#status.show(`${this.#submitted} jobs submitted, ${this.#refused} refused`);
  }

  #print(line: string): void {
    void print(`${line}\n`);
  }
}

/** The next job would be refused too. */
function isOfAll(reason: unknown): boolean {
  if (reason instanceof ApiError) return !ABOUT_ONE_JOB.has(reason.status);
  return reason instanceof UnreachableError;
}

function describe(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}
