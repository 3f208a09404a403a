// `millrace flows`: submits graphs of jobs, and shows, cancels and retries them.
import type { FlowRequest } from '../../wire/job/job.ts';
import type { CommandGroup } from '../command.ts';
import { integer, list, requiredText } from '../options.ts';
import { formatTable } from '../output.ts';
import { readObjectFile } from '../resources/request-body.ts';
import { addCursor, pageOptions } from '../resources/resource-command.ts';
import { defineJobVerb, printLine } from './jobs.ts';

const submitOptions = {
  file: requiredText({
    placeholder: 'FILE',
    help: 'file with the flow, a JSON object with a list of jobs; - reads standard input',
  }),
};

const listOptions = {
  ...pageOptions,
  limit: integer({ min: 1, max: 100, default: 20, help: 'maximum number of flows on one page' }),
};

const selection = {
  job: list({
    placeholder: 'NAME',
    help: 'name of a job; give the flag once for each; default: all jobs of the flow',
  }),
};

const ID = '01912f4e-…';

export const flowsCommands: CommandGroup = {
  name: 'millrace flows',
  description: [
    'A flow is a graph of jobs, perhaps on several endpoints, that one request submits: a job starts when its parents have ended. ' +
      'Every command needs the endpoint that keeps the flow: set --endpoint or MILLRACE_ENDPOINT.',
  ],
  verbs: {
    submit: defineJobVerb({
      summary: 'queues all jobs of a flow, or none',
      takes: undefined,
      options: submitOptions,
      examples: ['millrace flows submit --endpoint echo --file flow.json'],
      async act({ client, json, values }) {
        const flow = readObjectFile('--file', values.file);
        // The platform checks it.
        const submitted = await client.flows.run(flow as FlowRequest);
        if (json) return printLine(JSON.stringify(submitted));
        const rows = submitted.jobs.map(({ endpoint, id, name }) => [name, endpoint, id]);
        return printLine(`${submitted.id}\n${formatTable(['JOB', 'ENDPOINT', 'ID'], rows)}`);
      },
    }),
    list: defineJobVerb({
      summary: 'lists flows, newest first',
      takes: undefined,
      options: listOptions,
      examples: ['millrace flows list --endpoint echo'],
      async act({ client, json, values: { cursor, limit }, width }) {
        const page = await client.flows.list({ limit, ...(cursor !== undefined && { cursor }) });
        if (json) return printLine(JSON.stringify(page));
        if (page.flows.length === 0) return printLine('no flows');
        const rows = page.flows.map(({ counts, createdAt, id, status, total }) => [
          ...[id, status, new Date(createdAt).toISOString(), String(total), String(counts.open)],
          String(counts.failed + counts.timedOut + counts.removed),
        ]);
        const titles = ['ID', 'STATUS', 'SUBMITTED', 'JOBS', 'OPEN', 'FAILED'];
        return printLine(addCursor(formatTable(titles, rows, width), page.cursor));
      },
    }),
    show: defineJobVerb({
      summary: 'prints the jobs of a flow with their states and parents',
      takes: 'flow',
      options: {},
      examples: [`millrace flows show ${ID} --endpoint echo`],
      async act({ client, id, json, width }) {
        const flow = await client.flows.show(id);
        if (json) return printLine(JSON.stringify(flow));
        const rows = flow.jobs.map(({ after, endpoint, id: job, name, state }) => [
          ...[name, state, endpoint, job, after.map((parent) => parent.job).join(' ')],
        ]);
        const titles = ['JOB', 'STATE', 'ENDPOINT', 'ID', 'AFTER'];
        const counts = Object.entries(flow.counts).filter(([, count]) => count > 0);
        const summary = counts.map(([name, count]) => `${count} ${name}`).join(', ');
        return printLine(`${flow.status}: ${summary}\n${formatTable(titles, rows, width)}`);
      },
    }),
    cancel: defineJobVerb({
      summary: 'cancels the jobs of a flow that have not ended',
      takes: 'flow',
      options: selection,
      examples: [`millrace flows cancel ${ID} --endpoint echo`],
      async act({ client, id, json, values }) {
        const answer = await client.flows.cancel(id, select(values.job));
        return printLine(json ? JSON.stringify(answer) : `${answer.changed} cancelled`);
      },
    }),
    retry: defineJobVerb({
      summary: 'queues the failed and skipped jobs of a flow again',
      description: [
        'With --job, only these jobs and what follows from them. Jobs that have COMPLETED do not run again.',
      ],
      takes: 'flow',
      options: selection,
      examples: [`millrace flows retry ${ID} --endpoint echo --job render`],
      async act({ client, id, json, values }) {
        const answer = await client.flows.retry(id, select(values.job));
        return printLine(json ? JSON.stringify(answer) : `${answer.changed} queued`);
      },
    }),
  },
  examples: [
    'millrace flows submit --endpoint echo --file flow.json',
    `millrace flows show ${ID} --endpoint echo`,
  ],
};

function select(jobs: readonly string[]): { jobs?: readonly string[] } {
  return jobs.length > 0 ? { jobs } : {};
}
