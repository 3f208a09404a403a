// `millrace store`: checks, describes and backs up the database in a data folder of this machine.
import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { checkIntegrity } from '../../store/disk/integrity.ts';
import { explainFailure, nameStorageFailure } from '../../store/disk/sqlite-errors.ts';
import { backUpStore, describeStore, type StoreFiles } from '../../store/disk/store-files.ts';
import { type Command, CommandError, EXIT } from '../command.ts';
import { flag, type OptionValues, parseOptions, text, UsageError } from '../options.ts';
import { print, printNote } from '../output.ts';
import { formatTable } from '../table.ts';

const MB = 1_048_576;

const options = {
  data: text({
    default: './.millrace',
    placeholder: 'DIR',
    env: 'MILLRACE_DATA',
    help: 'data folder of the platform, on this machine',
  }),
  quick: flag({ help: 'check: skip the comparison of indexes with their tables' }),
  json: flag({ help: 'print one line of JSON' }),
};

type Values = OptionValues<typeof options>;

const ACTIONS = ['check', 'info', 'backup'];

export const storeCommand: Command = {
  name: 'millrace store',
  summary: "check, describe and back up a platform's database",
  description: [
    'Reads the database of a data folder. The platform may be running.',
    'check: look for damaged pages; progress goes to standard error. While it runs, the ' +
      'write-ahead log of a running platform grows.',
    'info: print sizes, free pages and the number of jobs, endpoints and keys.',
    'backup: write a consistent copy to a new file. To restore it, stop the platform, remove ' +
      'millrace.db, millrace.db-wal and millrace.db-shm from the data folder, put the copy there as ' +
      'millrace.db, and start the platform.',
  ],
  positionals: [
    { name: '<action>', help: ACTIONS.join(', ') },
    { name: '[file]', help: 'backup: the file to write; it must not exist' },
  ],
  options,
  examples: [
    'millrace store check --data /var/lib/millrace',
    'millrace store info --json',
    'millrace store backup /backups/millrace-monday.db --data /var/lib/millrace',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'done; check: no damage found' },
    { code: EXIT.failed, meaning: 'the database is damaged, missing or cannot be read' },
    { code: EXIT.usage, meaning: 'wrong usage' },
    { code: EXIT.interrupted, meaning: 'check: interrupted by Ctrl-C' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const [action, file, ...rest] = positionals;
  const known = ACTIONS.join(', ');
  if (action === undefined) throw new UsageError(`<action> is missing; give one of ${known}`);
  if (!ACTIONS.includes(action))
    throw new UsageError(`${action}: unknown action; give one of ${known}`);
  const surplus = action === 'backup' ? rest[0] : file;
  if (surplus !== undefined) throw new UsageError(`${surplus}: unexpected argument`);
  if (action === 'backup' && file === undefined)
    throw new UsageError('backup: [file] is missing; name the file to write');
  const path = locate(values);
  if (action === 'check') return check(path, values);
  if (action === 'info') return info(path, values);
  return backUp(path, resolve(file ?? ''), values);
}

function locate({ data }: Values): string {
  const path = join(resolve(data), 'millrace.db');
  const size = statSync(path, { throwIfNoEntry: false })?.size;
  if (size === undefined)
    throw new CommandError(`--data: ${path} does not exist; name the data folder of a platform`);
  if (size === 0) throw new CommandError(`--data: ${path} is empty; restore a backup`);
  return path;
}

async function check(path: string, { json, quick }: Values): Promise<number> {
  const interrupted = new AbortController();
  const interrupt = () => interrupted.abort();
  process.once('SIGINT', interrupt);
  process.once('SIGTERM', interrupt);
  const { problems, isComplete } = await checkIntegrity({
    ...{ path, depth: quick ? 'quick' : 'full', signal: interrupted.signal },
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
  printNote(`millrace store: ${path} is damaged. ${WHAT_TO_DO}\n`);
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
  attempt(path, () => backUpStore(path, target));
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
