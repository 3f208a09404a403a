// `millrace store`: checks, describes, backs up and copies the database of a platform.
import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import type { CopiedTable, CopyStep } from '../../platform/copy-store.ts';
import { explainFailure, nameStorageFailure } from '../../store/disk/store-failures.ts';
import {
  backUpStore,
  checkIntegrity,
  describeStore,
  type StoreFiles,
} from '../../store/disk/store-files.ts';
import {
  CommandError,
  type CommandGroup,
  defineVerb,
  EXIT,
  type ExitMeanings,
} from '../command.ts';
import { dataOption, explainPlatformError } from '../options/platform-option.ts';
import { passwordFileOption, readPostgresPassword } from '../options/store-options.ts';
import { flag, integer, type OptionValues, requiredText } from '../options.ts';
import { formatTable, print, printNote } from '../output.ts';

const MB = 1_048_576;

const placeOptions = {
  data: dataOption('data folder of the platform, on this machine'),
  json: flag({ help: 'print one line of JSON' }),
};

const checkOptions = {
  quick: flag({ help: 'skip the comparison of indexes with their tables' }),
  ...placeOptions,
};

type Values = OptionValues<typeof placeOptions>;

const exitCodes: ExitMeanings = {
  ok: 'done',
  failed: 'the database is damaged, incomplete, missing or cannot be read',
};

const checkVerb = defineVerb({
  summary: 'looks for damaged pages and missing files of large payloads',
  description: [
    'Progress goes to standard error. While the check runs, the write-ahead log of a running platform grows.',
  ],
  options: checkOptions,
  examples: ['millrace store check --data /var/lib/millrace'],
  exitCodes: {
    ...exitCodes,
    ok: 'no damage found',
    interrupted: 'interrupted by Ctrl-C',
  },
  async run({ values }) {
    return check(locate(values), values);
  },
});

const infoVerb = defineVerb({
  summary: 'prints sizes, large payloads, free pages and the number of jobs, endpoints and keys',
  description: [],
  options: placeOptions,
  exitCodes,
  examples: ['millrace store info --json'],
  async run({ values }) {
    return info(locate(values), values);
  },
});

const backupPositionals = [{ name: '<file>', help: 'file to write; it must not exist' }];

const backupVerb = defineVerb({
  summary: 'writes a consistent copy to a new file',
  description: [
    'The copy also has the large inputs and outputs, which are files in millrace.db.payloads. To restore it, stop the ' +
      'platform, remove millrace.db, millrace.db-wal, millrace.db-shm and the folder millrace.db.payloads from the data ' +
      'folder, put the copy there as millrace.db, and start the platform.',
  ],
  positionals: backupPositionals,
  options: placeOptions,
  examples: ['millrace store backup /backups/millrace-monday.db --data /var/lib/millrace'],
  exitCodes,
  async run({ positionals, values }) {
    return backUp(locate(values), resolve(positionals[0] ?? ''), values);
  },
});

/** Between two lines of progress. */
const PROGRESS_MS = 1_000;

const copyOptions = {
  from: requiredText({
    placeholder: 'DATABASE',
    sets: ['from'],
    help: 'database to copy: sqlite:DIR for a data folder, sqlite:FILE, or postgres://USER@HOST:5432/DATABASE',
  }),
  to: requiredText({
    placeholder: 'DATABASE',
    sets: ['to'],
    help: 'empty database to copy to, in the same form; a missing folder, file or schema is created',
  }),
  storePasswordFile: passwordFileOption('the Postgres database'),
  json: flag({ help: 'print one line of JSON' }),
  batchRows: integer({
    min: 1,
    max: 100_000,
    default: 1_000,
    placeholder: 'ROWS',
    section: 'advanced',
    help: 'maximum number of rows in one transaction of the target; it also ends at 4 MB',
  }),
};

const copyVerb = defineVerb({
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
  options: copyOptions,
  examples: [
    'millrace store copy --from sqlite:/var/lib/millrace --to postgres://millrace@db.example.com/jobs',
    'millrace store copy --from postgres://millrace@db.example.com/jobs --to sqlite:/var/lib/millrace',
  ],
  exitCodes: {
    ok: 'all rows are copied',
    failed: 'a database is in use, not empty, or cannot be used',
    interrupted: 'interrupted by Ctrl-C; run the command again to continue',
  },
  async run({ values }) {
    return copy(values);
  },
});

export const storeCommands: CommandGroup = {
  name: 'millrace store',
  description: [
    'check, info and backup read the database in a data folder, while the platform may run. copy moves a platform ' +
      'between SQLite and Postgres, while the platform is stopped.',
  ],
  verbs: { check: checkVerb, info: infoVerb, backup: backupVerb, copy: copyVerb },
  examples: [
    'millrace store check --data /var/lib/millrace',
    'millrace store backup /backups/millrace-monday.db --data /var/lib/millrace',
  ],
};

function locate({ data }: Values): string {
  const path = join(resolve(data), 'millrace.db');
  const size = statSync(path, { throwIfNoEntry: false })?.size;
  if (size === undefined)
    throw new CommandError(`--data: ${path} does not exist; name the data folder of a platform`);
  if (size === 0) throw new CommandError(`--data: ${path} is empty; restore a backup`);
  return path;
}

async function check(
  path: string,
  { json, quick }: OptionValues<typeof checkOptions>,
): Promise<number> {
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  const { problems, isComplete } = await checkIntegrity({
    path,
    depth: quick ? 'quick' : 'full',
    signal: interrupted.signal,
    onProgress: (read, total) => {
      const done = Math.min(read, total);
      printNote(`checked ${toMegabytes(done)} of ${toMegabytes(total)} MB\n`);
    },
  }).catch((error: unknown) => {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandError(`${path}: not checked: ${reason}`);
  });
  if (interrupted.signal.aborted) return EXIT.interrupted;
  if (!isComplete)
    throw new CommandError(`${path}: the check ended before all pages were read; run it again`);
  const lines = problems.length === 0 ? [`${path}: no damage found`] : problems;
  const isSound = problems.length === 0;
  void print(json ? `${JSON.stringify({ path, isSound, problems })}\n` : `${lines.join('\n')}\n`);
  if (isSound) return EXIT.ok;
  printNote(`millrace store check: ${path} is damaged. ${WHAT_TO_DO}\n`);
  return EXIT.failed;
}

const WHAT_TO_DO =
  'Stop the platform, copy the data folder, then restore a backup. Without a backup, ' +
  '`sqlite3 millrace.db .recover | sqlite3 recovered.db` saves what can be read.';

function info(path: string, { json }: Values): number {
  const files = attempt(path, () => describeStore(path));
  void print(`${json ? JSON.stringify({ path, ...files }) : describe(path, files)}\n`);
  return EXIT.ok;
}

function describe(path: string, files: StoreFiles): string {
  const { jobs, rows } = files;
  const statuses = Object.entries(jobs).map(([status, count]) => `${count} ${status}`);
  const lines = [
    ['database', `${path}, ${toMegabytes(files.databaseBytes)} MB`],
    ['large payloads', `${toMegabytes(files.payloadBytes)} MB`],
    ['write-ahead log', `${toMegabytes(files.walBytes)} MB`],
    ['disk reserve', `${toMegabytes(files.reserveBytes)} MB`],
    ['pages', `${files.pages} of ${files.pageBytes} bytes, ${files.freePages} free`],
    ['schema version', String(files.schemaVersion)],
    ...Object.entries(rows).map(([table, count]) => {
      const detail = table === 'job' && statuses.length > 0 ? `: ${statuses.join(', ')}` : '';
      return [`${table} rows`, `${count}${detail}`];
    }),
  ];
  return formatTable(['property', 'value'], lines);
}

function backUp(path: string, target: string, { json }: Values): number {
  if (statSync(target, { throwIfNoEntry: false }))
    throw new CommandError(`${target} exists already; name a new file`);
  const lost = attempt(path, () => backUpStore(path, target));
  for (const problem of lost) printNote(`not in the copy: ${problem}\n`);
  const { size } = statSync(target);
  const shown = json
    ? JSON.stringify({ file: target, bytes: size })
    : `${target}  ${toMegabytes(size)} MB`;
  void print(`${shown}\n`);
  return EXIT.ok;
}

function attempt<T>(path: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const code = nameStorageFailure(error);
    throw new CommandError(
      `${path}: ${reason}${code === undefined ? '' : `; ${explainFailure(code)}`}`,
    );
  }
}

function toMegabytes(bytes: number): string {
  return (bytes / MB).toFixed(1);
}

async function copy(values: OptionValues<typeof copyOptions>): Promise<number> {
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
      throw explainPlatformError(error, copyOptions);
    },
  );
  if (!tables) {
    printNote('interrupted; run the same command again to continue\n');
    return EXIT.interrupted;
  }
  const names = { from: nameDatabase(from), to: nameDatabase(to) };
  void print(`${json ? JSON.stringify({ ...names, tables }) : describeCopy(tables)}\n`);
  return EXIT.ok;
}

function describeCopy(tables: readonly CopiedTable[]): string {
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
