// `millrace failed`: lists failed jobs of all endpoints, also after their retention, and shows, exports, resubmits and deletes them.
import { type ApiCaller, callOf } from '../../client/api-caller.ts';
import type { FailedJob } from '../../client.ts';
import { ERROR_CODES, MAX_FAILED_IDS } from '../../wire/job/job.ts';
import type { ResubmittedJob, ResubmittedJobs } from '../../wire/job/job-records.ts';
import { FAILED_LIMIT, type FailedJobList } from '../../wire/resources/activity.ts';
import { ACTIVITY_ROUTES, JOB_ROUTES } from '../../wire/routes/routes.ts';
import type { CommandGroup } from '../command.ts';
import {
  choice,
  flag,
  integer,
  list,
  type OptionValues,
  requiredText,
  text,
  time,
  UsageError,
} from '../options.ts';
import { formatTable, print } from '../output.ts';
import {
  type ApiRequest,
  addCursor,
  confirm,
  defineApiVerb,
  pageOptions,
  showRecord,
  yesOption,
} from '../resources/resource-command.ts';

const filterOptions = {
  endpoint: text({ placeholder: 'ID', help: 'only jobs of this endpoint, by ID or name' }),
  error: choice({
    choices: ERROR_CODES,
    placeholder: 'CODE',
    help: 'only jobs of which an attempt failed with this code, such as handler_error',
  }),
  tag: list({
    placeholder: 'TAG',
    help: 'only jobs with this tag; give the flag once for each, for jobs with all of them',
  }),
  since: time({ help: 'only jobs that ended at or after this time, ISO 8601' }),
  until: time({ help: 'only jobs that ended at or before this time, ISO 8601' }),
  text: text({
    placeholder: 'TEXT',
    help: 'only jobs with this text in the message of their error, or in their input of at most 16 KB',
  }),
};

const listOptions = {
  ...filterOptions,
  ...pageOptions,
  limit: integer({ ...FAILED_LIMIT, help: 'maximum number of jobs on one page' }),
};

const chosenOptions = {
  ...filterOptions,
  id: list({
    placeholder: 'JOB',
    help: 'only this job; give the flag once for each, and --endpoint',
  }),
  all: flag({ help: 'all failed jobs; without it, give a filter or --id' }),
};

const changeOptions = { ...chosenOptions, yes: yesOption };

const showOptions = {
  endpoint: requiredText({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINT',
    help: 'ID or name of the endpoint that has the job',
  }),
};

export const failedCommands: CommandGroup = {
  name: 'millrace failed',
  description: [
    'The platform keeps FAILED and TIMED_OUT jobs as dead letters after their retention, for failedRetention of their endpoint. ' +
      'The commands use those of the endpoints for whose jobs the key has jobs:read.',
  ],
  verbs: {
    list: defineApiVerb({
      summary: 'lists failed jobs, the last submitted first',
      description: ['With the error of the last attempt and the start of the input.'],
      options: listOptions,
      examples: [
        'millrace failed list',
        'millrace failed list --error gpu_out_of_memory --json | jq .jobs[].id',
      ],
      act: printList,
    }),
    show: defineApiVerb({
      summary: 'prints one failed job with error, timeline, input and log',
      id: 'job ID',
      options: showOptions,
      examples: ['millrace failed show 01912f4e-… --endpoint echo --json | jq .error'],
      act: async ({ caller, id, json, values: { endpoint } }) =>
        showRecord(await readJob(caller, endpoint, id), json),
    }),
    resubmit: defineApiVerb({
      summary: 'submits failed jobs again, as new jobs that name them',
      description: ['A failed job is submitted again once, however often the command runs.'],
      options: changeOptions,
      examples: [
        'millrace failed resubmit --error handler_error --since 2026-01-15T09:00:00Z',
        'millrace failed resubmit --endpoint echo --id 01912f4e-…',
      ],
      act: resubmit,
    }),
    export: defineApiVerb({
      summary: 'prints failed jobs with error, timeline, input and log, one line of JSON each',
      options: chosenOptions,
      examples: ['millrace failed export --endpoint echo > failed.jsonl'],
      act: exportJobs,
    }),
    delete: defineApiVerb({
      summary: 'deletes failed jobs with their inputs and logs',
      options: changeOptions,
      examples: ['millrace failed delete --until 2026-01-01T00:00:00Z --yes'],
      act: deleteJobs,
    }),
  },
  examples: [
    'millrace failed list --text "no such model"',
    'millrace failed resubmit --endpoint echo --text "no such model"',
    'millrace failed export --all > failed.jsonl',
  ],
};

type Filter = Partial<OptionValues<typeof filterOptions>>;
type Listed = FailedJobList['jobs'][number];

async function printList(request: ApiRequest<typeof listOptions>): Promise<string> {
  const { caller, json, values, width } = request;
  const { cursor, limit } = values;
  const page = await readPage(caller, values, { cursor, limit });
  if (json) return JSON.stringify(page);
  const hasRetries = page.jobs.some(({ retriedAs }) => retriedAs !== undefined);
  const rows = page.jobs.map((job) => [
    ...[job.id, job.endpoint.name],
    job.endedAt === null ? '' : new Date(job.endedAt).toISOString(),
    ...[job.error?.code ?? job.status, job.error?.message ?? ''],
    job.inputPreview ?? (job.inputBytes === undefined ? '' : `${job.inputBytes} bytes`),
    ...(hasRetries ? [job.retriedAs ?? ''] : []),
  ]);
  const titles = ['ID', 'ENDPOINT', 'ENDED', 'ERROR', 'MESSAGE', 'INPUT'];
  if (hasRetries) titles.push('RESUBMITTED AS');
  const shown = rows.length === 0 ? 'no failed jobs' : formatTable(titles, rows, width);
  const missing = page.unreachable.map((id) => `\nno node answers for endpoint ${id}`);
  return addCursor(`${shown}${missing.join('')}`, page.cursor);
}

function readPage(
  caller: ApiCaller,
  { endpoint, error: errorCode, since, tag: tags, text: search, until }: Filter,
  page: { cursor: string | undefined; limit: number },
): Promise<FailedJobList> {
  return caller.json<FailedJobList>({
    ...callOf(ACTIVITY_ROUTES.listFailedJobs, {}),
    query: { endpoint, errorCode, tags, text: search, since, until, ...page },
  });
}

function readJob(caller: ApiCaller, endpoint: string, job: string): Promise<FailedJob> {
  return caller.json<FailedJob>(callOf(JOB_ROUTES.getFailedJob, { endpoint, job }));
}

function isGiven(value: string | number | readonly string[] | undefined): boolean {
  return Array.isArray(value) ? value.length > 0 : value !== undefined;
}

/** IDs by endpoint. @throws UsageError */
async function choose(
  caller: ApiCaller,
  { all, id: ids, ...filter }: OptionValues<typeof chosenOptions>,
  isChosen: (job: Listed) => boolean = () => true,
): Promise<Map<string, string[]>> {
  const isFiltered = Object.values(filter).some(isGiven);
  if (ids.length > 0) {
    const { endpoint, ...others } = filter;
    const isAlone = !all && !Object.values(others).some(isGiven);
    if (endpoint !== undefined && isAlone) return new Map([[endpoint, ids]]);
    throw new UsageError('--id needs --endpoint, and no other filter');
  }
  if (!isFiltered && !all) throw new UsageError('give a filter, --id or --all');
  const chosen = new Map<string, string[]>();
  let cursor: string | undefined;
  do {
    const page = await readPage(caller, filter, { cursor, limit: FAILED_LIMIT.max });
    for (const job of page.jobs.filter(isChosen)) {
      const { id } = job.endpoint;
      chosen.set(id, [...(chosen.get(id) ?? []), job.id]);
    }
    cursor = page.cursor;
  } while (cursor !== undefined);
  return chosen;
}

function count(chosen: ReadonlyMap<string, readonly string[]>): number {
  return [...chosen.values()].reduce((sum, ids) => sum + ids.length, 0);
}

/** In parts that one request takes. */
function* split(chosen: ReadonlyMap<string, readonly string[]>) {
  for (const [endpoint, ids] of chosen) {
    for (let at = 0; at < ids.length; at += MAX_FAILED_IDS) {
      yield { endpoint, ids: ids.slice(at, at + MAX_FAILED_IDS) };
    }
  }
}

async function resubmit(request: ApiRequest<typeof changeOptions>): Promise<string> {
  const { caller, json, values } = request;
  const { yes, ...choice } = values;
  const chosen = await choose(caller, choice, ({ retriedAs }) => retriedAs === undefined);
  const total = count(chosen);
  if (total > 0 && choice.id.length === 0)
    await confirm(`Submit ${total} failed jobs again?`, { yes });
  const jobs: ResubmittedJob[] = [];
  for (const { endpoint, ids } of split(chosen)) {
    const call = callOf(JOB_ROUTES.resubmitJobs, { endpoint });
    const answer = await caller.json<ResubmittedJobs>({ ...call, body: { ids }, repeatable: true });
    jobs.push(...answer.jobs);
  }
  if (json) return JSON.stringify({ jobs });
  const lines = jobs.map((job) =>
    'error' in job
      ? `${job.retryOf}  not submitted: ${job.error.detail}`
      : `${job.retryOf}  ${job.isNew ? 'submitted as' : 'had been submitted as'} ${job.id}`,
  );
  return lines.length === 0 ? 'no failed jobs to submit again' : lines.join('\n');
}

async function exportJobs({ caller, values }: ApiRequest<typeof chosenOptions>): Promise<string> {
  const chosen = await choose(caller, values);
  let last = '';
  for (const [endpoint, ids] of chosen) {
    for (const id of ids) {
      if (last !== '') await print(`${last}\n`);
      last = JSON.stringify(await readJob(caller, endpoint, id));
    }
  }
  return last;
}

async function deleteJobs(request: ApiRequest<typeof changeOptions>): Promise<string> {
  const { caller, json, values } = request;
  const { yes, ...choice } = values;
  const chosen = await choose(caller, choice);
  await confirm(`Delete ${count(chosen)} failed jobs?`, { yes });
  let deleted = 0;
  for (const { endpoint, ids } of split(chosen)) {
    const call = callOf(JOB_ROUTES.deleteFailedJobs, { endpoint });
    deleted += (await caller.json<{ deleted: number }>({ ...call, body: { ids } })).deleted;
  }
  return json ? JSON.stringify({ deleted }) : `${deleted} deleted`;
}
