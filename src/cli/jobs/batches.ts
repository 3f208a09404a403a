// `millrace batches`: runs the lines of a file as jobs, and shows, cancels and reads batches.
import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import type { BatchRecord } from '../../wire/job/batch-records.ts';
import { CommandError, type CommandGroup } from '../command.ts';
import { flag, integer, requiredText, text } from '../options.ts';
import { formatTable } from '../output.ts';
import { addCursor, pageOptions } from '../resources/resource-command.ts';
import { defineJobVerb, printLine } from './jobs.ts';

const { windowMs } = BATCH_LIMITS;

const submitOptions = {
  file: requiredText({
    placeholder: 'FILE',
    help: 'file with one line for each job, {"id": "…", "input": {…}}; - reads standard input',
  }),
  window: integer({
    ...{ min: windowMs.min, max: windowMs.max, default: windowMs.default },
    help: 'time until what has not ended is given up, ms',
  }),
};

const listOptions = {
  ...pageOptions,
  limit: integer({
    min: 1,
    max: 1_000,
    default: 20,
    help: 'maximum number of batches on one page',
  }),
  open: flag({ help: 'only batches that have not ended' }),
};

const outputOptions = {
  failed: flag({ help: 'the lines without a COMPLETED job' }),
  output: text({
    placeholder: 'FILE',
    help: 'file to write, or to replace; default: standard output',
  }),
};

const ID = 'batch_01912f4e-…';
const STDIN = 0;

export const batchesCommands: CommandGroup = {
  name: 'millrace batches',
  description: [
    'A batch runs the lines of one file as jobs, when nothing more urgent waits, and collects their results in a file. ' +
      'Every command needs the endpoint of the batch: set --endpoint or MILLRACE_ENDPOINT.',
  ],
  verbs: {
    submit: defineJobVerb({
      summary: 'runs the lines of a file as jobs',
      takes: undefined,
      options: submitOptions,
      examples: ['millrace batches submit --endpoint echo --file lines.jsonl'],
      async act({ client, json, values }) {
        const { file, window } = values;
        const lines = readFile(file);
        const batch = await client.batches.submit(lines, { window });
        return printLine(json ? JSON.stringify(batch) : batch.id);
      },
    }),
    list: defineJobVerb({
      summary: 'lists batches, newest first',
      takes: undefined,
      options: listOptions,
      examples: ['millrace batches list --endpoint echo'],
      async act({ client, json, values: { cursor, limit, open }, width }) {
        const page = await client.batches.list({
          limit,
          ...(cursor !== undefined && { cursor }),
          ...(open && { ended: false }),
        });
        if (json) return printLine(JSON.stringify(page));
        if (page.batches.length === 0) return printLine('no batches');
        const rows = page.batches.map(toRow);
        return printLine(addCursor(formatTable(TITLES, rows, width), page.cursor));
      },
    }),
    show: defineJobVerb({
      summary: 'prints how far a batch is',
      takes: 'batch',
      options: {},
      examples: [`millrace batches show ${ID} --endpoint echo`],
      async act({ client, id, json, width }) {
        const batch = await client.batches.show(id);
        return printLine(json ? JSON.stringify(batch) : formatTable(TITLES, [toRow(batch)], width));
      },
    }),
    cancel: defineJobVerb({
      summary: 'cancels the jobs of a batch that have not ended, and gives up its other lines',
      takes: 'batch',
      options: {},
      examples: [`millrace batches cancel ${ID} --endpoint echo`],
      async act({ client, id, json }) {
        const batch = await client.batches.cancel(id);
        return printLine(json ? JSON.stringify(batch) : batch.state);
      },
    }),
    output: defineJobVerb({
      summary: 'prints the results of a batch that has ended',
      takes: 'batch',
      options: outputOptions,
      examples: [
        `millrace batches output ${ID} --endpoint echo --output results.jsonl`,
        `millrace batches output ${ID} --endpoint echo --failed`,
      ],
      async act({ client, id, values: { failed, output } }) {
        const lines = await client.batches.results(id, { failed });
        if (output !== undefined) await writeFile(output, lines);
        else for await (const piece of lines) process.stdout.write(piece);
        return 0;
      },
    }),
  },
  examples: [
    'millrace batches submit --endpoint echo --file lines.jsonl',
    `millrace batches output ${ID} --endpoint echo`,
  ],
};

const TITLES = ['ID', 'STATE', 'CREATED', 'LINES', 'COMPLETED', 'FAILED', 'LIVE'];

function toRow({ completed, createdAt, failed, id, live, state, total }: BatchRecord): string[] {
  const counts = [total, completed, failed, live].map(String);
  return [id, state, new Date(createdAt).toISOString(), ...counts];
}

/** @throws CommandError */
function readFile(path: string): Uint8Array {
  try {
    return readFileSync(path === '-' ? STDIN : path);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new CommandError(`--file: ${reason}`, { cause });
  }
}
