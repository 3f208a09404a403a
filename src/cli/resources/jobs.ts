// `millrace jobs`: the job API from the command line.
import type { Client, JobRecord, JobSummary } from '../../client.ts';
import { JOB_STATUSES } from '../../wire/job.ts';
import { type Command, EXIT } from '../command.ts';
import {
  choice,
  flag,
  integer,
  type OptionValues,
  parseOptions,
  text,
  UsageError,
} from '../options.ts';
import { print } from '../output.ts';
import { callPlatform, clientOptions, connect } from './client-options.ts';

const options = {
  ...clientOptions,
  json: flag({ help: "the service's answer as one line of JSON" }),
  status: choice({
    choices: JOB_STATUSES,
    placeholder: 'STATUS',
    help: `list: only jobs of this status: ${JOB_STATUSES.join(', ')}`,
  }),
  limit: integer({ min: 1, max: 1_000, default: 20, help: 'list: jobs in one page' }),
  cursor: text({ placeholder: 'CURSOR', help: 'list: the next page, as the last one told' }),
  input: text({ placeholder: 'JSON', help: 'submit: the input, a JSON object' }),
  webhook: text({ placeholder: 'URL', help: 'submit: where the record is posted at the end' }),
  wait: flag({ help: 'submit: print the chunks as they come, then the record' }),
};

type Values = OptionValues<typeof options>;

interface Request {
  client: Client;
  values: Values;
  job: string;
}

interface Action {
  needsJob: boolean;
  help: string;
  act: (request: Request) => Promise<number>;
}

const ACTIONS: Readonly<Record<string, Action>> = {
  list: { needsJob: false, help: 'the newest jobs first', act: listJobs },
  show: { needsJob: true, help: "a job's record, its output and error", act: showJob },
  submit: { needsJob: false, help: 'queue a job with --input', act: submitJob },
  stream: {
    needsJob: true,
    help: "a job's chunks, one JSON line each, until it ends",
    act: streamJob,
  },
  cancel: { needsJob: true, help: 'cancel a job that waits or runs', act: cancelJob },
  retry: { needsJob: true, help: 'queue a FAILED or TIMED_OUT job again', act: retryJob },
  purge: { needsJob: false, help: 'cancel every job that waits', act: purgeQueue },
  health: { needsJob: false, help: 'how many jobs and workers there are', act: showHealth },
};

export const jobsCommand: Command = {
  name: 'millrace jobs',
  summary: 'submit, list, show, cancel and retry jobs',
  description: [
    "Talks to a running platform. What a job's handler logged is shown by `millrace logs`.",
    ...Object.entries(ACTIONS).map(([name, { help }]) => `${name}: ${help}.`),
  ],
  positionals: [
    { name: '<action>', help: Object.keys(ACTIONS).join(', ') },
    { name: '<endpoint>', help: 'id of the endpoint' },
    { name: '[job]', help: 'id of the job, for show, stream, cancel and retry' },
  ],
  options,
  examples: [
    'millrace jobs list echo --status FAILED',
    `millrace jobs submit text-stream --input '{"text":"One. Two."}' --wait`,
    'millrace jobs show echo 01912f4e-… --json | jq .output',
    'MILLRACE_KEY=mr_… millrace jobs retry echo 01912f4e-… --url https://queue.example.com',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'done' },
    { code: EXIT.failed, meaning: 'refused, or the platform does not answer' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const [word, endpoint, job, ...rest] = positionals;
  const known = Object.keys(ACTIONS).join(', ');
  if (word === undefined) throw new UsageError(`<action> is missing: one of ${known}`);
  const action = Object.hasOwn(ACTIONS, word) ? ACTIONS[word] : undefined;
  if (!action) throw new UsageError(`${word}: there is no such action; known are ${known}`);
  if (endpoint === undefined) throw new UsageError(`${word}: <endpoint> is missing`);
  if (action.needsJob && job === undefined) throw new UsageError(`${word}: <job> is missing`);
  const surplus = action.needsJob ? rest[0] : job;
  if (surplus !== undefined) throw new UsageError(`${surplus}: is one argument too many`);
  const client = connect({ url: values.url, key: values.key, endpoint });
  return await callPlatform(() => action.act({ client, values, job: job ?? '' }));
}

async function listJobs({ client, values }: Request): Promise<number> {
  const { cursor, limit, status } = values;
  const page = await client.jobs({
    limit,
    ...(status !== undefined && { status }),
    ...(cursor !== undefined && { cursor }),
  });
  if (values.json) return printLine(JSON.stringify(page));
  const next = page.cursor === undefined ? [] : [`more: --cursor ${page.cursor}`];
  return printLine([...page.jobs.map(describeJob), ...next].join('\n') || 'no jobs');
}

function describeJob({ attempt, executionTime, id, status, submittedAt }: JobSummary): string {
  const at = new Date(submittedAt).toISOString();
  return `${id}  ${status.padEnd(11)}  ${at}  attempt ${attempt}  ${executionTime} ms`;
}

async function showJob({ client, job, values }: Request): Promise<number> {
  return showRecord(await client.status(job), values);
}

function showRecord(record: JobRecord, values: Values): number {
  return printLine(values.json ? JSON.stringify(record) : JSON.stringify(record, null, 2));
}

async function submitJob({ client, values }: Request): Promise<number> {
  const { webhook } = values;
  const options = webhook === undefined ? {} : { webhook };
  const reference = await client.run(readInput(values.input), options);
  if (!values.wait) {
    return printLine(
      values.json ? JSON.stringify(reference) : `${reference.id}  ${reference.status}`,
    );
  }
  await streamJob({ client, values, job: reference.id });
  const record = await client.status(reference.id);
  showRecord(record, values);
  return record.status === 'COMPLETED' ? EXIT.ok : EXIT.failed;
}

async function streamJob({ client, job }: Request): Promise<number> {
  for await (const { output } of client.stream(job)) printLine(JSON.stringify(output));
  return EXIT.ok;
}

async function cancelJob({ client, job, values }: Request): Promise<number> {
  return showReference(await client.cancel(job), values);
}

async function retryJob({ client, job, values }: Request): Promise<number> {
  return showReference(await client.retry(job), values);
}

function showReference(reference: { id: string; status: string }, values: Values): number {
  return printLine(
    values.json ? JSON.stringify(reference) : `${reference.id}  ${reference.status}`,
  );
}

async function purgeQueue({ client, values }: Request): Promise<number> {
  const answer = await client.purgeQueue();
  return printLine(values.json ? JSON.stringify(answer) : `${answer.removed} removed`);
}

async function showHealth({ client, values }: Request): Promise<number> {
  const health = await client.health();
  if (values.json) return printLine(JSON.stringify(health));
  const lines = Object.entries(health).map(([name, counts]) => {
    const each = Object.entries(counts).map(([state, count]) => `${state} ${count}`);
    return `${name}: ${each.join(', ')}`;
  });
  return printLine(lines.join('\n'));
}

function readInput(given: string | undefined): object {
  if (given === undefined) throw new UsageError('submit: --input JSON is missing');
  let value: unknown;
  try {
    value = JSON.parse(given);
  } catch (error) {
    throw new UsageError(`--input: is not JSON: ${error instanceof Error ? error.message : ''}`);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new UsageError('--input: must be a JSON object');
}

function printLine(line: string): number {
  void print(`${line}\n`);
  return EXIT.ok;
}
