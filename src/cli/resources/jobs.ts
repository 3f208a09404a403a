// `millrace jobs`: submits, lists and follows the jobs of one endpoint.
import type { Client, JobRecord } from '../../client.ts';
import { JOB_STATUSES } from '../../wire/job.ts';
import { checkArguments } from '../arguments.ts';
import { type CommandGroup, EXIT, type Verb } from '../command.ts';
import {
  choice,
  flag,
  integer,
  type OptionTable,
  type OptionValues,
  parseSharedOptions,
  requiredText,
  text,
  UsageError,
} from '../options.ts';
import { print } from '../output.ts';
import { formatTable } from '../table.ts';
import { CALL_EXIT_CODES, callOptions } from './api-verb.ts';
import { callPlatform, connect } from './client-options.ts';
import { followOptions, printLog } from './job-log.ts';
import { addCursor, pageOptions, showRecord } from './resource-command.ts';

const endpoint = requiredText({
  placeholder: 'ID',
  env: 'MILLRACE_ENDPOINT',
  help: 'ID of the endpoint that has the jobs',
});

const sharedOptions = { endpoint, ...callOptions };

interface JobRequest<Table extends OptionTable> {
  client: Client;
  /** Empty if the command takes no job ID. */
  job: string;
  values: OptionValues<Table>;
  json: boolean;
}

interface JobVerb<Table extends OptionTable> {
  summary: string;
  description?: readonly string[];
  takesJob: boolean;
  options: Table;
  examples: readonly string[];
  act: (request: JobRequest<Table>) => Promise<number>;
}

const listOptions = {
  status: choice({
    choices: JOB_STATUSES,
    placeholder: 'STATUS',
    help: `only jobs with this status: ${JOB_STATUSES.join(', ')}`,
  }),
  ...pageOptions,
  limit: integer({ min: 1, max: 1_000, default: 20, help: 'most jobs on one page' }),
};

const submitOptions = {
  input: requiredText({ placeholder: 'JSON', help: 'input of the job, a JSON object' }),
  webhook: text({ placeholder: 'URL', help: 'URL that receives the record when the job ends' }),
  wait: flag({
    help: 'print chunks as they arrive, then the record; exit code 1 unless the job is COMPLETED',
  }),
};

const ID = '01912f4e-…';

export const jobsCommands: CommandGroup = {
  name: 'millrace jobs',
  description: [
    'Every command needs the endpoint of the jobs: set --endpoint or MILLRACE_ENDPOINT.',
  ],
  verbs: {
    list: defineJobVerb({
      summary: 'list jobs, newest first',
      takesJob: false,
      options: listOptions,
      examples: ['millrace jobs list --endpoint echo --status FAILED'],
      act: listJobs,
    }),
    submit: defineJobVerb({
      summary: 'queue a job',
      takesJob: false,
      options: submitOptions,
      examples: [
        `millrace jobs submit --endpoint text-stream --input '{"text":"One. Two."}' --wait`,
      ],
      act: submitJob,
    }),
    show: defineJobVerb({
      summary: 'print one job with its output and error',
      takesJob: true,
      options: {},
      examples: [`millrace jobs show ${ID} --endpoint echo --json | jq .output`],
      act: async ({ client, job, json }) => printRecord(await client.status(job), json),
    }),
    stream: defineJobVerb({
      summary: 'print the chunks of a job, one line of JSON each, until it ends',
      takesJob: true,
      options: {},
      examples: [`millrace jobs stream ${ID} --endpoint text-stream`],
      act: ({ client, job }) => streamJob(client, job),
    }),
    logs: defineJobVerb({
      summary: "print what the job's handler logged",
      description: [
        'Prints the lines that the handler wrote with ctx.log and console, in all attempts. The platform ' +
          'keeps 1 MB a job; if the handler logged more, the last line says how much is missing.',
      ],
      takesJob: true,
      options: followOptions,
      examples: [
        `millrace jobs logs ${ID} --endpoint echo`,
        `millrace jobs logs ${ID} --endpoint echo -f`,
      ],
      act: async ({ client, job, json, values }) => {
        await printLog({ client, job, json, follow: values.follow });
        return EXIT.ok;
      },
    }),
    cancel: defineJobVerb({
      summary: 'cancel a queued or running job',
      takesJob: true,
      options: {},
      examples: [`millrace jobs cancel ${ID} --endpoint echo`],
      act: async ({ client, job, json }) => printReference(await client.cancel(job), json),
    }),
    retry: defineJobVerb({
      summary: 'queue a FAILED or TIMED_OUT job again',
      takesJob: true,
      options: {},
      examples: [
        `MILLRACE_KEY=mr_… millrace jobs retry ${ID} --endpoint echo --url https://queue.example.com`,
      ],
      act: async ({ client, job, json }) => printReference(await client.retry(job), json),
    }),
    purge: defineJobVerb({
      summary: 'cancel all queued jobs',
      takesJob: false,
      options: {},
      examples: ['millrace jobs purge --endpoint echo'],
      act: purgeQueue,
    }),
    health: defineJobVerb({
      summary: 'count jobs and workers by state',
      takesJob: false,
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

function defineJobVerb<Table extends OptionTable>(verb: JobVerb<Table>): Verb {
  const { act, description = [], examples, options, summary, takesJob } = verb;
  const positionals = takesJob ? [{ name: '<id>', help: 'job ID' }] : [];
  return {
    ...{ summary, description, positionals, examples, exitCodes: CALL_EXIT_CODES },
    options: { endpoint, ...options, ...callOptions },
    async run(args) {
      const spelled = args.map((arg) => (arg === '-f' ? '--follow' : arg));
      const parsed = parseSharedOptions(options, sharedOptions, spelled);
      checkArguments(positionals, parsed.positionals);
      const { shared, values } = parsed;
      const [job = ''] = parsed.positionals;
      const client = connect(shared);
      return await callPlatform(() => act({ client, job, values, json: shared.json }));
    },
  };
}

async function listJobs(request: JobRequest<typeof listOptions>): Promise<number> {
  const { client, json, values } = request;
  const { cursor, limit, status } = values;
  const page = await client.jobs({
    limit,
    ...(status !== undefined && { status }),
    ...(cursor !== undefined && { cursor }),
  });
  if (json) return printLine(JSON.stringify(page));
  if (page.jobs.length === 0) return printLine('no jobs');
  const rows = page.jobs.map(({ attempt, executionTime, id, status, submittedAt }) => [
    ...[id, status, new Date(submittedAt).toISOString(), String(attempt), String(executionTime)],
  ]);
  const titles = ['ID', 'STATUS', 'SUBMITTED', 'ATTEMPT', 'RUN MS'];
  return printLine(addCursor(formatTable(titles, rows), page.cursor));
}

function printRecord(record: JobRecord, json: boolean): number {
  return printLine(showRecord(record, json));
}

async function submitJob(request: JobRequest<typeof submitOptions>): Promise<number> {
  const { client, json, values } = request;
  const { webhook } = values;
  const options = webhook === undefined ? {} : { webhook };
  const reference = await client.run(readInput(values.input), options);
  if (!values.wait) return printReference(reference, json);
  await streamJob(client, reference.id);
  const record = await client.status(reference.id);
  printRecord(record, json);
  return record.status === 'COMPLETED' ? EXIT.ok : EXIT.failed;
}

async function streamJob(client: Client, job: string): Promise<number> {
  for await (const { output } of client.stream(job)) printLine(JSON.stringify(output));
  return EXIT.ok;
}

function printReference(reference: { id: string; status: string }, json: boolean): number {
  return printLine(json ? JSON.stringify(reference) : `${reference.id}  ${reference.status}`);
}

async function purgeQueue({ client, json }: JobRequest<OptionTable>): Promise<number> {
  const answer = await client.purgeQueue();
  return printLine(json ? JSON.stringify(answer) : `${answer.removed} removed`);
}

async function printHealth({ client, json }: JobRequest<OptionTable>): Promise<number> {
  const health = await client.health();
  if (json) return printLine(JSON.stringify(health));
  const lines = Object.entries(health).map(([name, counts]) => {
    const each = Object.entries(counts).map(([state, count]) => `${state} ${count}`);
    return `${name}: ${each.join(', ')}`;
  });
  return printLine(lines.join('\n'));
}

function readInput(given: string): object {
  let value: unknown;
  try {
    value = JSON.parse(given);
  } catch (error) {
    throw new UsageError(`--input is not JSON: ${error instanceof Error ? error.message : ''}`);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new UsageError('--input must be a JSON object');
}

function printLine(line: string): number {
  void print(`${line}\n`);
  return EXIT.ok;
}
