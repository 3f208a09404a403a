// `millrace jobs`: lists, follows, exports and changes the jobs of one endpoint. submit.ts submits.
import { type FileHandle, open } from 'node:fs/promises';
import {
  ApiError,
  type Client,
  type JobDetails,
  type JobFilters,
  type JobRecord,
  type JobSummary,
} from '../../client.ts';
import type { JobChange } from '../../wire/job/job.ts';
import { type CommandGroup, EXIT, type ExitMeanings, type Verb } from '../command.ts';
import { checkArguments, parseSharedOptions } from '../option-parser.ts';
import {
  flag,
  integer,
  type OptionTable,
  type OptionValues,
  requiredText,
  text,
  UsageError,
} from '../options.ts';
import { formatTable, print, printNote, printStyled, readTableWidth } from '../output.ts';
import { callPlatform, connect } from '../resources/client-options.ts';
import {
  addCursor,
  CALL_EXIT_CODES,
  callOptions,
  confirm,
  pageOptions,
  showRecord,
  yesOption,
} from '../resources/resource-command.ts';
import { formatLogLine } from '../terminal-log.ts';
import { filterOf, filterOptions } from './filters.ts';
import { printReference, streamJob, submitJob, submitOptions } from './submit.ts';

const endpoint = requiredText({
  placeholder: 'ID',
  env: 'MILLRACE_ENDPOINT',
  help: 'ID or name of the endpoint that has the jobs',
});

const sharedOptions = { endpoint, ...callOptions };

interface JobRequest<Table extends OptionTable> {
  client: Client;
  /** Of the job, or what else the command takes; empty if it takes none. */
  id: string;
  values: OptionValues<Table>;
  json: boolean;
  /** Width that tables have to fit. */
  width: number;
}

interface JobVerb<Table extends OptionTable> {
  summary: string;
  description?: readonly string[];
  /** What the argument of the command identifies. */
  takes: 'batch' | 'flow' | 'job' | undefined;
  options: Table;
  /** Default: those of every call. */
  exitCodes?: ExitMeanings;
  examples: readonly string[];
  act: (request: JobRequest<Table>) => Promise<number>;
}

const listOptions = {
  ...filterOptions,
  ...pageOptions,
  limit: integer({ min: 1, max: 1_000, default: 20, help: 'maximum number of jobs on one page' }),
};

const changeOptions = {
  ...filterOptions,
  all: flag({ help: 'all jobs; without it, give a filter' }),
  count: flag({ help: 'only count the jobs; change nothing' }),
  yes: yesOption,
};

const CHANGES = {
  cancel: { does: 'cancels all queued and running jobs', ask: 'Cancel', done: 'cancelled' },
  retry: { does: 'queues all FAILED and TIMED_OUT jobs again', ask: 'Retry', done: 'queued again' },
  delete: {
    does: 'deletes all jobs that have ended, with their outputs,',
    ask: 'Delete',
    done: 'deleted',
  },
} as const satisfies Record<JobChange, object>;

const exportOptions = {
  ...filterOptions,
  short: flag({
    help: 'only what the list of jobs has: faster, without input, output and timeline',
  }),
  output: text({
    placeholder: 'FILE',
    help: 'file to write, or to replace; default: standard output',
  }),
};

const purgeOptions = { yes: yesOption };

const streamOptions = {
  json: flag({ help: 'print each chunk with its metrics, attempt and position' }),
};

const followOptions = {
  follow: flag({ alias: '-f', help: 'print new lines until the job ends; also -f' }),
  json: flag({ help: 'print lines of JSON on a terminal too' }),
};

const ID = '01912f4e-…';

export const jobsCommands: CommandGroup = {
  name: 'millrace jobs',
  description: [
    'Every command needs the endpoint of the jobs: set --endpoint or MILLRACE_ENDPOINT.',
  ],
  verbs: {
    list: defineJobVerb({
      summary: 'lists jobs, newest first',
      takes: undefined,
      options: listOptions,
      description: [
        'With another filter than --status, a page looks at 20,000 jobs at most: it may have few jobs, or none, and yet a next page.',
      ],
      examples: [
        'millrace jobs list --endpoint echo --status FAILED',
        'millrace jobs list --endpoint echo --tag customer-7 --since 2026-01-15T09:00:00Z',
      ],
      act: listJobs,
    }),
    submit: defineJobVerb({
      summary: 'queues one job, or one for each line of a file',
      description: [
        'Give the input with one of --input, --input-file and --each. With --each, the other options apply to every job, ' +
          'and up to 100 jobs share a request. The command prints the IDs in the order of the lines. It reports a line that ' +
          'is not a JSON object, or whose job the platform refuses, with its number on standard error, and submits the ' +
          'others. It stops if the platform does not respond or refuses all jobs. If you run it again, it submits all lines again, unless ' +
          'you give the same --idempotency-key.',
      ],
      takes: undefined,
      options: submitOptions,
      exitCodes: {
        ok: 'job submitted; with --each: all jobs submitted; with --wait: the job is COMPLETED',
        failed:
          'the platform rejected a job or did not respond; with --each: or a line is not a JSON object; with --wait: ' +
          'the job is not COMPLETED',
      },
      examples: [
        `millrace jobs submit --endpoint text-stream --input '{"text":"One. Two."}' --wait`,
        'millrace jobs submit --endpoint echo --input-file input.json --ttl 3600000',
        `millrace jobs submit --endpoint echo --input '{"n":1}' --delay 60000 --idempotency-key order-17`,
        'millrace jobs submit --endpoint echo --each inputs.jsonl --json > jobs.jsonl',
      ],
      act: submitJob,
    }),
    show: defineJobVerb({
      summary: 'prints one job with its times, input, output and error',
      takes: 'job',
      options: {},
      examples: [`millrace jobs show ${ID} --endpoint echo --json | jq .output`],
      act: async ({ client, id: job, json }) => {
        const details = await readDetails(client, job);
        return printLine(showRecord(json ? details : shortenInput(details), json));
      },
    }),
    stream: defineJobVerb({
      summary: 'prints the chunks of a job, one line of JSON each, until it ends',
      takes: 'job',
      options: streamOptions,
      examples: [`millrace jobs stream ${ID} --endpoint text-stream`],
      act: ({ client, id: job, json }) => streamJob(client, job, json),
    }),
    logs: defineJobVerb({
      summary: "prints what the job's handler logged",
      description: [
        'The log has what ctx.log and console wrote, in all attempts. The platform keeps 1 MB a job; if the ' +
          'handler logged more, the last line says how much is missing.',
      ],
      takes: 'job',
      options: followOptions,
      examples: [
        `millrace jobs logs ${ID} --endpoint echo`,
        `millrace jobs logs ${ID} --endpoint echo -f`,
      ],
      act: printLog,
    }),
    cancel: defineJobVerb({
      summary: 'cancels a queued or running job',
      takes: 'job',
      options: {},
      examples: [`millrace jobs cancel ${ID} --endpoint echo`],
      act: async ({ client, id: job, json }) => printReference(await client.cancel(job), json),
    }),
    retry: defineJobVerb({
      summary: 'queues a FAILED or TIMED_OUT job again',
      takes: 'job',
      options: {},
      examples: [
        `MILLRACE_KEY=mr_… millrace jobs retry ${ID} --endpoint echo --url https://queue.example.com`,
      ],
      act: async ({ client, id: job, json }) => printReference(await client.retry(job), json),
    }),
    export: defineJobVerb({
      summary: 'prints all jobs that match filters, one line of JSON each, newest first',
      description: [
        'A line has what `millrace jobs show --json` prints: times, timeline, input, output and error. The platform removes ended ' +
          'jobs after their retention: export them before, or store what webhooks bring.',
      ],
      takes: undefined,
      options: exportOptions,
      examples: [
        'millrace jobs export --endpoint echo > jobs.jsonl',
        'millrace jobs export --endpoint echo --tag customer-7 --output jobs.jsonl',
      ],
      act: exportJobs,
    }),
    'cancel-many': defineChange('cancel'),
    'retry-many': defineChange('retry'),
    'delete-many': defineChange('delete'),
    purge: defineJobVerb({
      summary: 'cancels all queued jobs',
      takes: undefined,
      options: purgeOptions,
      examples: ['millrace jobs purge --endpoint echo'],
      act: purgeQueue,
    }),
    health: defineJobVerb({
      summary: 'counts jobs and workers by state',
      takes: undefined,
      options: {},
      examples: ['millrace jobs health --endpoint echo'],
      act: printHealth,
    }),
  },
  examples: [
    `millrace jobs submit --endpoint text-stream --input '{"text":"One. Two."}' --wait`,
    'millrace jobs list --endpoint echo --status FAILED',
    `millrace jobs logs ${ID} --endpoint echo -f`,
  ],
};

export function defineJobVerb<Table extends OptionTable>(verb: JobVerb<Table>): Verb {
  const { act, description = [], examples, exitCodes = CALL_EXIT_CODES, options } = verb;
  const { summary, takes } = verb;
  const positionals = takes === undefined ? [] : [{ name: '<id>', help: `${takes} ID` }];
  return {
    summary,
    description,
    positionals,
    examples,
    exitCodes,
    options: { ...sharedOptions, ...options },
    async run(args) {
      const parsed = parseSharedOptions(options, sharedOptions, args);
      checkArguments(positionals, parsed.positionals);
      const { shared, values } = parsed;
      const [id = ''] = parsed.positionals;
      const client = connect(shared);
      const width = readTableWidth(shared);
      const request = { client, id, values, json: shared.json, width };
      return await callPlatform(() => act(request), { options });
    },
  };
}

function defineChange(change: JobChange): Verb {
  const { ask, does, done } = CHANGES[change];
  return defineJobVerb({
    summary: `${does} that match filters`,
    description: [
      'It counts the jobs, asks, and changes those that it has counted, 1,000 with each request. If it is interrupted, run it again.',
    ],
    takes: undefined,
    options: changeOptions,
    examples: [
      `millrace jobs ${change}-many --endpoint echo --tag customer-7 --count`,
      `millrace jobs ${change}-many --endpoint echo --error handler_error --until 2026-01-15T09:00:00Z`,
    ],
    act: async ({ client, json, values }) => {
      const { all, count, yes } = values;
      const filter = filterOf(values);
      if (!all && Object.keys(filter).length === 0) throw new UsageError('give a filter or --all');
      const counted = await client.changeJobs(change, filter, { dryRun: true });
      const { asOf, matched } = counted;
      if (count) return printLine(json ? JSON.stringify(counted) : `${matched} match`);
      if (matched > 0)
        await confirm(
          `${matched} ${matched === 1 ? 'job matches' : 'jobs match'}. ${ask} ${matched === 1 ? 'it' : 'them'}?`,
          { yes },
        );
      const answer = matched > 0 ? await client.changeJobs(change, filter, { asOf }) : counted;
      const rest = answer.matched - answer.changed;
      const more = rest > 0 ? `, ${rest} could not be` : '';
      return printLine(json ? JSON.stringify(answer) : `${answer.changed} ${done}${more}`);
    },
  });
}

async function listJobs(request: JobRequest<typeof listOptions>): Promise<number> {
  const { client, json, values, width } = request;
  const { cursor, limit } = values;
  const page = await client.jobs({
    limit,
    ...filterOf(values),
    ...(cursor !== undefined && { cursor }),
  });
  if (json) return printLine(JSON.stringify(page));
  if (page.jobs.length === 0) return printLine(addCursor('no jobs', page.cursor));
  const hasTags = page.jobs.some(({ tags }) => tags);
  const rows = page.jobs.map(({ attempt, executionTime, id, status, submittedAt, tags = [] }) => [
    ...[id, status, new Date(submittedAt).toISOString(), String(attempt), String(executionTime)],
    ...(hasTags ? [tags.join(' ')] : []),
  ]);
  const titles = ['ID', 'STATUS', 'SUBMITTED', 'ATTEMPT', 'RUN MS', ...(hasTags ? ['TAGS'] : [])];
  return printLine(addCursor(formatTable(titles, rows, width), page.cursor));
}

/** Jobs whose details are read at once. */
const READ_AT_ONCE = 8;

async function exportJobs({ client, values }: JobRequest<typeof exportOptions>): Promise<number> {
  const { output, short } = values;
  const file = output === undefined ? undefined : await openOutput(output);
  const write = async (lines: readonly object[]) => {
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    await (file ? file.write(text) : print(text));
  };
  let count = 0;
  try {
    for await (const jobs of listPages(client, filterOf(values))) {
      for (let at = 0; at < jobs.length; at += READ_AT_ONCE) {
        const some = jobs.slice(at, at + READ_AT_ONCE);
        const all = short ? some : await Promise.all(some.map(({ id }) => tryDetails(client, id)));
        const lines = all.filter((line) => line !== undefined);
        await write(lines);
        count += lines.length;
      }
    }
  } finally {
    await file?.close();
  }
  if (output !== undefined) printNote(`millrace jobs export: ${count} jobs in ${output}\n`);
  return EXIT.ok;
}

/** @throws UsageError */
async function openOutput(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'w');
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new UsageError(`--output: ${path} cannot be written: ${reason}`);
  }
}

const EXPORT_PAGE = 200;

async function* listPages(client: Client, filters: JobFilters): AsyncGenerator<JobSummary[]> {
  let cursor: string | undefined;
  do {
    const more = cursor !== undefined && { cursor };
    const page = await client.jobs({ ...filters, ...more, limit: EXPORT_PAGE });
    yield page.jobs;
    cursor = page.cursor;
  } while (cursor !== undefined);
}

/** Undefined: the job has been removed meanwhile. */
async function tryDetails(client: Client, job: string): Promise<object | undefined> {
  try {
    return await readDetails(client, job);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}

async function purgeQueue(request: JobRequest<typeof purgeOptions>): Promise<number> {
  const { client, json, values } = request;
  await confirm('Cancel all queued jobs of the endpoint?', values);
  const answer = await client.purgeQueue();
  return printLine(json ? JSON.stringify(answer) : `${answer.removed} cancelled`);
}

async function printHealth({ client, json }: JobRequest<OptionTable>): Promise<number> {
  const health = await client.health();
  if (json) return printLine(JSON.stringify(health));
  const { jobs, paused, pausedGroups = 0, workers } = health;
  const lines = Object.entries({ jobs, workers }).map(([name, counts]) => {
    const each = Object.entries(counts).map(([state, count]) => `${state} ${count}`);
    return `${name}: ${each.join(', ')}`;
  });
  if (paused) lines.push(`paused since ${toIso(paused.since)}`);
  if (pausedGroups > 0) lines.push(`paused groups: ${pausedGroups}`);
  return printLine(lines.join('\n'));
}

export function printLine(line: string): number {
  void print(`${line}\n`);
  return EXIT.ok;
}

/** A larger input is not printed on request of a person, bytes. */
const MAX_SHOWN = 16_384;

/** Times are ISO 8601. @throws ApiError, UnreachableError */
async function readDetails(client: Client, job: string): Promise<object> {
  return joinDetails(await client.status(job), await client.details(job));
}

function joinDetails(
  { error, output, progress, suspendedSince: _, waitReason, ...record }: JobRecord,
  { availableAt, endedAt, expiresAt, input, timeline, ...details }: JobDetails,
): object {
  const { queuedAt, startedAt, submittedAt, suspendedSince, ...more } = details;
  return {
    ...more,
    ...record,
    submittedAt: toIso(submittedAt),
    ...(queuedAt !== submittedAt && { queuedAt: toIso(queuedAt) }),
    ...(availableAt !== undefined && { availableAt: toIso(availableAt) }),
    startedAt: toIso(startedAt),
    ...(suspendedSince !== undefined && { suspendedSince: toIso(suspendedSince) }),
    endedAt: toIso(endedAt),
    expiresAt: toIso(expiresAt),
    timeline: timeline.map(({ at, nextAt, ...entry }) => ({
      at: toIso(at),
      ...entry,
      ...(nextAt !== undefined && { nextAt: toIso(nextAt) }),
    })),
    ...(waitReason && { waitReason }),
    input,
    ...(progress !== undefined && { progress }),
    ...(output !== undefined && { output }),
    ...(error && { error }),
  };
}

/** For a person: a large input is described by its size. */
function shortenInput(shown: object): object {
  if (!('input' in shown)) return shown;
  const bytes = Buffer.byteLength(JSON.stringify(shown.input));
  return bytes <= MAX_SHOWN ? shown : { ...shown, input: `(${bytes} bytes; --json prints them)` };
}

function toIso(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

/** Without a terminal the log is always NDJSON. */
async function printLog(request: JobRequest<typeof followOptions>): Promise<number> {
  const { client, id: job, json, values } = request;
  const isPretty = process.stdout.isTTY === true && !json;
  if (values.follow) {
    for await (const { lines, note } of client.followLog(job)) printLines(lines + note, isPretty);
    return EXIT.ok;
  }
  const { lines, note } = await client.log(job);
  printLines(lines + note, isPretty);
  return EXIT.ok;
}

function printLines(lines: string, isPretty: boolean): void {
  if (!isPretty) {
    void print(lines);
    return;
  }
  for (const line of lines.split('\n')) {
    if (line !== '') void printStyled(`${formatLogLine(line)}\n`);
  }
}
