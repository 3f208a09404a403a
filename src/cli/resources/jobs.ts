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
  json: flag({ help: "print the platform's response as one line of JSON" }),
  status: choice({
    choices: JOB_STATUSES,
    placeholder: 'STATUS',
    help: `list: only jobs with this status: ${JOB_STATUSES.join(', ')}`,
  }),
  limit: integer({ min: 1, max: 1_000, default: 20, help: 'list: most jobs of one page' }),
  cursor: text({
    placeholder: 'CURSOR',
    help: 'list: cursor of the page, printed with the page before',
  }),
  input: text({ placeholder: 'JSON', help: 'submit: input of the job, a JSON object' }),
  webhook: text({
    placeholder: 'URL',
    help: 'submit: URL that receives the record when the job ends',
  }),
  wait: flag({ help: 'submit: print chunks as they arrive, then the record' }),
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
  list: { needsJob: false, help: 'list jobs, newest first', act: listJobs },
  show: { needsJob: true, help: 'print one job with its output and error', act: showJob },
  submit: { needsJob: false, help: 'queue a job with --input', act: submitJob },
  stream: {
    needsJob: true,
    help: 'print the chunks of a job, one JSON line each, until it ends',
    act: streamJob,
  },
  cancel: { needsJob: true, help: 'cancel a queued or running job', act: cancelJob },
  retry: { needsJob: true, help: 'queue a FAILED or TIMED_OUT job again', act: retryJob },
  purge: { needsJob: false, help: 'cancel all queued jobs', act: purgeQueue },
  health: { needsJob: false, help: 'count jobs and workers', act: showHealth },
};

export const jobsCommand: Command = {
  name: 'millrace jobs',
  summary: 'submit, list, show, cancel and retry jobs',
  description: [
    "Calls a running platform. `millrace logs` shows what a job's handler logged.",
    ...Object.entries(ACTIONS).map(([name, { help }]) => `${name}: ${help}.`),
  ],
  positionals: [
    { name: '<action>', help: Object.keys(ACTIONS).join(', ') },
    { name: '<endpoint>', help: 'endpoint ID' },
    { name: '[job]', help: 'job ID, for show, stream, cancel and retry' },
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
    { code: EXIT.failed, meaning: 'the platform refused the call or does not answer' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const [word, endpoint, job, ...rest] = positionals;
  const known = Object.keys(ACTIONS).join(', ');
  if (word === undefined) throw new UsageError(`<action> is missing; give one of ${known}`);
  const action = Object.hasOwn(ACTIONS, word) ? ACTIONS[word] : undefined;
  if (!action) throw new UsageError(`${word}: unknown action; give one of ${known}`);
  if (endpoint === undefined)
    throw new UsageError(`${word}: <endpoint> is missing; give an endpoint ID`);
  if (action.needsJob && job === undefined)
    throw new UsageError(`${word}: <job> is missing; give a job ID`);
  const surplus = action.needsJob ? rest[0] : job;
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
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
  const next = page.cursor === undefined ? [] : [`next page: --cursor ${page.cursor}`];
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
    throw new UsageError(`--input is not JSON: ${error instanceof Error ? error.message : ''}`);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new UsageError('--input must be a JSON object');
}

function printLine(line: string): number {
  void print(`${line}\n`);
  return EXIT.ok;
}
