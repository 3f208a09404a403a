// What `millrace dev` prints: the banner with a command for each endpoint, and one line for each request and
// attempt.
import { relative } from 'node:path';
import type { ServedRequest } from '../../api/http/guard.ts';
import { quoteWord } from '../../base/text/shell-words.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import type { JobStatus } from '../../wire/job/job.ts';
import type { Outcome, Report, ReportReply, WorkerLink } from '../../wire/link/worker-link.ts';
import { fillPath } from '../../wire/routes/route.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { chooseExample, type JsonSchema, readSource } from '../example-input.ts';
import { showOwnStack } from '../output.ts';

interface BannerEndpoint {
  endpointId: string;
  file: string;
  isServed: boolean;
  /** Schema of its inputs; null if none is known. */
  schema: JsonSchema | null;
}

interface BannerOptions {
  version: string;
  url: string;
  /** Undefined if calls need no key. */
  key: string | undefined;
  endpoints: readonly BannerEndpoint[];
  /** Says where jobs are stored. */
  dataNote: string;
}

export function renderBanner(options: BannerOptions): string {
  const { dataNote, endpoints, key, url, version } = options;
  const blocks = [
    [`Millrace ${version} is ready at ${url}`, dataNote].join('\n'),
    ...(key === undefined ? [] : [`API key: ${key}`]),
    ...endpoints.map((endpoint) => describeEndpoint(endpoint, options)),
  ];
  const shown = chooseStream(endpoints);
  if (shown) blocks.push(`Stream the output:\n  ${streamCommand(shown, options)}`);
  return `${blocks.join('\n\n')}\n`;
}

/** Chooses, among the endpoints that seem to stream, the one with the shortest example. */
function chooseStream(endpoints: readonly BannerEndpoint[]): BannerEndpoint | undefined {
  const rated = endpoints
    .filter(({ file, isServed }) => isServed && /\byield\b/.test(readSource(file)))
    .map((endpoint) => ({ endpoint, length: showExample(endpoint).length }))
    .sort((a, b) => a.length - b.length);
  return rated[0]?.endpoint ?? endpoints[0];
}

function showExample({ file, schema }: BannerEndpoint): string {
  return JSON.stringify({ input: chooseExample(file, schema) });
}

/** Says where the endpoint is and how to call it. */
export function describeEndpoint(
  endpoint: BannerEndpoint,
  { key, url }: Pick<BannerOptions, 'key' | 'url'>,
): string {
  const { endpointId, file, isServed } = endpoint;
  const place = relative(process.cwd(), file);
  const state = isServed ? '' : '  (no worker, see the log)';
  const address = url + fillPath(JOB_ROUTES.runJobSync, { endpoint: endpointId });
  const request = curlRequest(address, endpoint, key);
  return `${endpointId}  ${place}${state}\n  ${request}`;
}

function curlRequest(url: string, endpoint: BannerEndpoint, key: string | undefined): string {
  const body = showExample(endpoint);
  const parts = ['curl -s', url, "-H 'Content-Type: application/json'", ...keyHeader(key)];
  return [...parts, '-d', quoteWord(body)].join(' ');
}

function streamCommand(endpoint: BannerEndpoint, { key, url }: BannerOptions): string {
  const { endpointId } = endpoint;
  const path = fillPath(JOB_ROUTES.runJob, { endpoint: endpointId });
  const submit = curlRequest(url + path, endpoint, key);
  const takeId = String.raw`sed 's/.*"id":"\([^"]*\)".*/\1/'`;
  const stream = fillPath(JOB_ROUTES.streamJob, { endpoint: endpointId, job: 'JOB' });
  const address = `"${url}${stream.replace(/JOB$/, () => `$(${submit} | ${takeId})`)}"`;
  return ["curl -sN -H 'Accept: text/event-stream'", ...keyHeader(key), address].join(' ');
}

function keyHeader(key: string | undefined): string[] {
  return key === undefined ? [] : [`-H 'Authorization: Bearer ${key}'`];
}

export interface ActivityOptions {
  /** Prints text that ends with a line break. */
  print: (text: string) => void;
  /** Current status of a job that has not completed. Rejects if the job is gone. */
  readStatus: (endpointId: string, jobId: string) => Promise<JobStatus | undefined>;
  /** `failures`: prints only attempts that did not complete. */
  shown: 'all' | 'failures';
  /** Unix ms. */
  now: () => number;
  /** Paths in it are shown relative to it. */
  folder: string;
}

/** Attempts whose chunks are counted at a time; beyond that, the oldest counts are lost. */
const MAX_COUNTED = 10_000;

export class Activity {
  readonly #options: ActivityOptions;
  /** Chunks so far, by lease token. */
  readonly #chunks = new Map<string, number>();

  constructor(options: ActivityOptions) {
    this.#options = options;
  }

  noteRequest({ access, durationMs, method, path, status }: ServedRequest): void {
    if (access === 'worker' || this.#options.shown === 'failures') return;
    this.#print(`${method} ${path} ${status}, ${Math.round(durationMs)} ms`);
  }

  /** Returns a link whose reports are watched. */
  watch(link: WorkerLink, endpointId: string): WorkerLink {
    return {
      ...link,
      report: async (request) => {
        const replies = await link.report(request);
        for (const [index, report] of request.reports.entries()) {
          this.#noteReport(endpointId, report, replies[index]);
        }
        return replies;
      },
    };
  }

  #noteReport(endpointId: string, report: Report, reply: ReportReply | undefined): void {
    if (reply?.answer !== 'applied') return;
    const { token } = report;
    const chunks = this.#chunks.get(token) ?? 0;
    if (report.kind === 'chunks') {
      this.#chunks.set(token, chunks + report.sizes.length);
      const [oldest] = this.#chunks.keys();
      if (oldest !== undefined && this.#chunks.size > MAX_COUNTED) this.#chunks.delete(oldest);
    }
    if (report.kind !== 'outcome') return;
    this.#chunks.delete(token);
    void this.#noteOutcome(endpointId, report, chunks);
  }

  async #noteOutcome(
    endpointId: string,
    { attempt, jobId, outcome }: Extract<Report, { kind: 'outcome' }>,
    chunks: number,
  ): Promise<void> {
    const isCompleted = outcome.kind === 'completed';
    if (isCompleted && this.#options.shown === 'failures') return;
    const status = isCompleted
      ? 'COMPLETED'
      : await this.#options.readStatus(endpointId, jobId).catch(() => undefined);
    this.#print(describeAttempt({ endpointId, jobId, attempt, outcome, status, chunks }));
    if ('error' in outcome) this.#printStack(outcome.error);
  }

  #printStack({ message, stack }: AttemptError): void {
    const { folder, print } = this.#options;
    const own = stack === undefined ? '' : showOwnStack(stack, { folder });
    const text = own.includes(message) ? own : [message, own].filter(Boolean).join('\n');
    print(`${text.replaceAll(/^/gm, '    ')}\n`);
  }

  #print(line: string): void {
    const time = new Date(this.#options.now()).toLocaleTimeString('en-GB');
    this.#options.print(`${time} ${line}\n`);
  }
}

interface EndedAttempt {
  endpointId: string;
  jobId: string;
  attempt: number;
  outcome: Outcome;
  /** Undefined if it is no longer known. */
  status: JobStatus | undefined;
  chunks: number;
}

function describeAttempt(ended: EndedAttempt): string {
  const { attempt, chunks, endpointId, jobId, outcome, status } = ended;
  const ms = 'executionMs' in outcome ? [`${Math.round(outcome.executionMs)} ms`] : [];
  const counted = chunks === 0 ? [] : [`${chunks} ${chunks === 1 ? 'chunk' : 'chunks'}`];
  const numbers = [...ms, ...counted].join(', ');
  return [`job ${endpointId}/${jobId} ${describeEnd(outcome, attempt, status)}`, numbers]
    .filter(Boolean)
    .join(', ');
}

function describeEnd(outcome: Outcome, attempt: number, status: JobStatus | undefined): string {
  const isOver = status !== 'IN_QUEUE' && status !== 'IN_PROGRESS';
  if (isOver) return status ?? 'is gone';
  if (outcome.kind === 'failed') return `attempt ${attempt} failed and is retried`;
  return `attempt ${attempt} ${outcome.kind}; the job returns to the queue`;
}
