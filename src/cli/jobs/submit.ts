// `millrace jobs submit`: submits one job, or one for each line of a file, many with each request.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { iterateLines } from '../../base/text/line-reader.ts';
import {
  ApiError,
  type Client,
  type JobPolicy,
  type NewJob,
  type SubmitResult,
  UnreachableError,
  type WaitCode,
} from '../../client.ts';
import { LIMITS, PARENT_POLICIES } from '../../wire/job/job.ts';
import { findRetryFault, isRetryPolicy, type RetryPolicy } from '../../wire/job/retry-policy.ts';
import { EXIT } from '../command.ts';
import { choice, flag, integer, list, type OptionValues, text, UsageError } from '../options.ts';
import { noteFailedOutput, outliveOutput, print, printNote, StatusLine } from '../output.ts';
import { parseObject, readObjectFile } from '../resources/request-body.ts';
import { showRecord } from '../resources/resource-command.ts';

export const submitOptions = {
  input: text({ placeholder: 'JSON', help: 'input of the job, a JSON object' }),
  inputFile: text({
    placeholder: 'FILE',
    help: 'file with the input of the job, a JSON object; - reads standard input',
  }),
  each: text({
    placeholder: 'FILE',
    help: 'file with many inputs, a JSON object on each line; - reads standard input; not with --wait',
  }),
  executionTimeout: integer({
    min: LIMITS.executionTimeoutMs.min,
    max: LIMITS.executionTimeoutMs.max,
    placeholder: 'MS',
    help: "time limit of one attempt, ms; default: the endpoint's",
  }),
  ttl: integer({
    min: LIMITS.ttlMs.min,
    max: LIMITS.ttlMs.max,
    placeholder: 'MS',
    help: 'time after which the platform removes the job, whatever its state, ms; waits for a delay or a retry do not count; default: 86400000 (24 h)',
  }),
  group: text({
    placeholder: 'NAME',
    help: 'group of the job, 1 to 64 characters; the groups of an endpoint share its GPU time',
  }),
  tag: list({
    placeholder: 'TAG',
    help: 'text to find the job by, such as customer-7; give the flag once for each, 10 at most',
  }),
  priority: integer({
    min: 0,
    max: 9,
    help: 'jobs of a higher priority start first; default: 0',
  }),
  delay: integer({
    ...LIMITS.delayMs,
    placeholder: 'MS',
    help: 'time before the job may start, ms; default: 0',
  }),
  after: list({
    placeholder: 'JOB',
    help: 'ID of a job that must end before this one starts; give the flag once for each',
  }),
  onParentFailure: choice({
    choices: PARENT_POLICIES,
    help: 'what becomes of the job if one of --after ends without COMPLETED: it is FAILED, runs nevertheless, or is CANCELLED with its own children; default: fail',
  }),
  retry: text({
    placeholder: 'JSON',
    help: 'retry policy, such as {"backoff":"fixed","delayMs":5000,"maxAttempts":5}; see docs/retries.md',
  }),
  idempotencyKey: text({
    placeholder: 'KEY',
    help: 'text of your choice, 1 to 255 characters: a second submission with it queues no second job; with --each, the key of a line is KEY-1, KEY-2, …',
  }),
  webhook: text({ placeholder: 'URL', help: 'URL that receives the record when the job ends' }),
  wait: flag({
    help: 'print chunks as they arrive, then the record, and on standard error why the job waits; exit code 1 unless the job is COMPLETED',
  }),
  json: flag({
    help: 'print one line of JSON; with --wait, one for each chunk with its metrics; with --each, one for each job with the number of its line',
  }),
};

interface Submission {
  client: Client;
  values: OptionValues<typeof submitOptions>;
  json: boolean;
}

/** Returns the exit code. @throws UsageError, ApiError, UnreachableError */
export async function submitJob(request: Submission): Promise<number> {
  const { client, json, values } = request;
  const { delay, each: file, executionTimeout, group, idempotencyKey, priority } = values;
  const { after, onParentFailure: onFailure, retry, tag: tags, ttl, wait, webhook } = values;
  const policy: JobPolicy = {
    ...(delay !== undefined && { delay }),
    ...(priority !== undefined && { priority }),
    ...(executionTimeout !== undefined && { executionTimeout }),
    ...(ttl !== undefined && { ttl }),
    ...(group !== undefined && { group }),
    ...(tags.length > 0 && { tags }),
    ...(retry !== undefined && { retry: readPolicy(retry) }),
  };
  const options = {
    ...(webhook !== undefined && { webhook }),
    ...(after.length > 0 && {
      after: after.map((id) => ({ id, ...(onFailure && { onFailure }) })),
    }),
    ...(Object.keys(policy).length > 0 && { policy }),
  };
  checkSource(values);
  if (file !== undefined) {
    return await submitEach({ client, file, json, options, idempotencyKey });
  }
  const key = idempotencyKey !== undefined && { idempotencyKey };
  const reference = await client.run(readInput(values), { ...options, ...key });
  if (!wait) return printReference(reference, json);
  const started = new AbortController();
  void noteWaits(client, reference.id, started.signal);
  await streamJob(client, reference.id, json).finally(() => started.abort());
  const record = await client.status(reference.id);
  void print(`${showRecord(record, json)}\n`);
  return record.status === 'COMPLETED' ? EXIT.ok : EXIT.failed;
}

/** @throws UsageError */
function readPolicy(json: string): RetryPolicy {
  const policy = parseObject('--retry', json);
  if (isRetryPolicy(policy)) return policy;
  throw new UsageError(`--retry: ${findRetryFault(policy)}`);
}

/** @throws UsageError unless the inputs come from one place */
function checkSource({
  after,
  each,
  input,
  inputFile,
  onParentFailure,
  wait,
}: Submission['values']): void {
  const given = [each, input, inputFile].filter((value) => value !== undefined);
  if (given.length !== 1) {
    throw new UsageError('give one of --input JSON, --input-file FILE and --each FILE');
  }
  if (onParentFailure !== undefined && after.length === 0) {
    throw new UsageError('--on-parent-failure needs --after');
  }
  if (each !== undefined && wait) throw new UsageError('--each cannot be given with --wait');
}

function readInput({
  input,
  inputFile,
}: Pick<Submission['values'], 'input' | 'inputFile'>): object {
  return inputFile === undefined
    ? parseObject('--input', input ?? '')
    : readObjectFile('--input-file', inputFile);
}

/** Prints the chunks whole if `json`, else only their outputs. */
export async function streamJob(client: Client, job: string, json: boolean): Promise<number> {
  for await (const chunk of client.stream(job)) {
    void print(`${JSON.stringify(json ? chunk : chunk.output)}\n`);
  }
  return EXIT.ok;
}

export function printReference(reference: { id: string; status: string }, json: boolean): number {
  void print(`${json ? JSON.stringify(reference) : `${reference.id}  ${reference.status}`}\n`);
  return EXIT.ok;
}

/** Most jobs start sooner, and need no note. */
const NOTE_EVERY_MS = 3_000;

/** Prints each new reason until the job has left the queue or the signal aborts. Never rejects. */
async function noteWaits(client: Client, job: string, signal: AbortSignal): Promise<void> {
  let told: WaitCode | undefined;
  while (!signal.aborted) {
    try {
      await sleep(NOTE_EVERY_MS, undefined, { signal });
      const { status, waitReason } = await client.status(job);
      if (signal.aborted || status !== 'IN_QUEUE') return;
      if (!waitReason || waitReason.code === told) continue;
      told = waitReason.code;
      printNote(`millrace jobs submit: job ${job} waits (${told}): ${waitReason.message}\n`);
    } catch {
      // The stream, which the command follows, reports errors.
      return;
    }
  }
}

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
async function submitEach(submission: EachSubmission): Promise<number> {
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
