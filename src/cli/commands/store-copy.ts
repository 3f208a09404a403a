// `millrace store copy`: copies the database of a stopped platform to SQLite or Postgres.
import type { CopiedTable, CopyStep } from '../../platform/copy-store.ts';
import { EXIT, type Verb } from '../command.ts';
import { checkArguments, parseOptions } from '../option-parser.ts';
import { explainPlatformError } from '../options/platform-flags.ts';
import { passwordFileOption, readPostgresPassword } from '../options/store-options.ts';
import { flag, integer, type OptionValues, requiredText } from '../options.ts';
import { formatTable, print, printNote } from '../output.ts';

/** Between two lines of progress. */
const PROGRESS_MS = 1_000;

const options = {
  from: requiredText({
    placeholder: 'DATABASE',
    help: 'database to copy: sqlite:DIR for a data folder, sqlite:FILE, or postgres://USER@HOST:5432/DATABASE',
  }),
  to: requiredText({
    placeholder: 'DATABASE',
    help: 'empty database to copy to, in the same form; a missing folder, file or schema is created',
  }),
  storePasswordFile: passwordFileOption('the Postgres database'),
  json: flag({ help: 'print one line of JSON' }),
  batchRows: integer({
    ...{ min: 1, max: 100_000, default: 1_000, placeholder: 'ROWS', section: 'advanced' },
    help: 'maximum number of rows in one transaction of the target; it also ends at 4 MB',
  }),
};

export const copyVerb: Verb = {
  summary: 'copies the database to SQLite or Postgres',
  description: [
    'Stop the platform first: the copy locks both databases. The target must be empty. The copy migrates the source ' +
      'to the schema of this version, as the start of a platform does, and otherwise leaves its data alone.',
    'To continue a copy that was interrupted or killed, run the same command again. A platform does not start on an ' +
      'unfinished copy. If a platform has used the source since, the copy cannot continue: empty the target and start again.',
    'The copy has all jobs, payloads, keys, endpoints, templates and pods. The other files of the data folder, such as ' +
      'webhook-secrets, are not part of it.',
    'Progress goes to standard error if that is a terminal.',
  ],
  positionals: [],
  options,
  examples: [
    'millrace store copy --from sqlite:/var/lib/millrace --to postgres://millrace@db.example.com/jobs',
    'millrace store copy --from postgres://millrace@db.example.com/jobs --to sqlite:/var/lib/millrace',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'all rows are copied' },
    { code: EXIT.failed, meaning: 'a database is in use, not empty, or cannot be used' },
    { code: EXIT.usage, meaning: 'wrong usage' },
    { code: EXIT.interrupted, meaning: 'interrupted by Ctrl-C; run the command again to continue' },
  ],
  async run(args) {
    const { positionals, values } = parseOptions(options, args);
    checkArguments([], positionals);
    return copy(values);
  },
};

async function copy(values: OptionValues<typeof options>): Promise<number> {
  const { batchRows, from, json, storePasswordFile, to } = values;
  const password = readPostgresPassword(storePasswordFile);
  // Only here, because the driver of Postgres takes time to load.
  const { copyStore, nameDatabase } = await import('../../platform/copy-store.ts');
  const interrupted = new AbortController();
  const { signal } = interrupted;
  const interrupt = () => interrupted.abort();
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  const onProgress = process.stderr.isTTY ? createProgress() : () => {};
  const tables = await copyStore({ from, to, password, batchRows, onProgress, signal }).catch(
    (error: unknown) => {
      throw explainPlatformError(error);
    },
  );
  if (!tables) {
    printNote('interrupted; run the same command again to continue\n');
    return EXIT.interrupted;
  }
  const names = { from: nameDatabase(from), to: nameDatabase(to) };
  void print(`${json ? JSON.stringify({ ...names, tables }) : describe(tables)}\n`);
  return EXIT.ok;
}

function describe(tables: readonly CopiedTable[]): string {
  const rows = tables.map(({ source, table, target }) => [table, String(source), String(target)]);
  return formatTable(['table', 'rows in the source', 'rows in the target'], rows);
}

/** Prints a line a second at most. */
function createProgress(): (step: CopyStep) => void {
  let last: { at: number; copied: number } | undefined;
  return ({ copied, table, total }) => {
    const at = performance.now();
    last ??= { at, copied };
    if (at - last.at < PROGRESS_MS && copied < total) return;
    const seconds = (at - last.at) / 1_000;
    const rate = seconds > 0 ? `, ${Math.round((copied - last.copied) / seconds)} rows/s` : '';
    printNote(`copied ${copied} of ${total} rows (${table}${rate})\n`);
    last = { at, copied };
  };
}
