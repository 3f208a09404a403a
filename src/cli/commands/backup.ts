// `millrace backup` copies the data of a platform to a new folder while it runs; `millrace restore` checks a backup and
// puts it into the data folder of a platform that does not run.
import { resolve } from 'node:path';
import { type Backup, BackupError, backUp, restore } from '../../platform/backup.ts';
import { explainFailure, nameStorageFailure } from '../../store/disk/store-failures.ts';
import { CommandError, defineCommand, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { dataOption, explainPlatformError } from '../options/platform-option.ts';
import { flag } from '../options.ts';
import { formatTable, print, printNote } from '../output.ts';

const backupOptions = {
  data: dataOption('data folder of the platform, on this machine'),
  withoutDatabase: flag({
    help: 'copy only the files beside the database, for a platform on Postgres',
  }),
  json: flag({ help: 'print one line of JSON' }),
};

export const backupCommand = defineCommand({
  name: 'millrace backup',
  description: [
    'Writes a new folder with a consistent copy of the database, large payloads included, and the small files ' +
      'of the data folder: secrets of webhooks, the key file if it is there, and the names of the platform. The platform may run. Only you may read ' +
      'the folder: keep it as safe as the data folder.',
    'The backup has no disks of pods and no outcomes that workers have not delivered yet. `millrace restore` checks ' +
      'the backup and puts it into a data folder.',
  ],
  positionals: [{ name: '<folder>', help: 'folder to write; it must not exist' }],
  options: backupOptions,
  examples: ['millrace backup /backups/monday --data /var/lib/millrace'],
  exitCodes: {
    ok: 'the backup is complete and on disk',
    failed: 'no backup was written',
  },
  run: runBackup,
});

async function runBackup({
  positionals,
  values,
}: ParsedArguments<typeof backupOptions>): Promise<number> {
  const target = resolve(positionals[0] ?? '');
  const dataFolder = resolve(values.data);
  const made = await backUp({
    dataFolder,
    target,
    hasDatabase: !values.withoutDatabase,
    now: new Date(),
  }).catch((error: unknown) => {
    throw explain(error, dataFolder);
  });
  void print(values.json ? `${JSON.stringify(toJson(made, target))}\n` : describe(made, target));
  const { leftOut, lost } = made;
  for (const problem of lost) printNote(`not in the backup: ${problem}\n`);
  if (leftOut.length > 0) printNote(`not in the backup: ${leftOut.join(', ')}\n`);
  return EXIT.ok;
}

function toJson({ leftOut, lost, manifest }: Backup, folder: string) {
  return { folder, ...manifest, leftOut, lost };
}

function describe({ manifest }: Backup, target: string): string {
  const rows = manifest.files.map(({ bytes, name }) => [name, String(bytes)]);
  return `${formatTable(['file', 'bytes'], rows)}\nwrote ${target}\n`;
}

function explain(error: unknown, dataFolder: string): unknown {
  if (error instanceof BackupError) return new CommandError(error.message);
  // Errors of SQLite and of the system, such as a full disk.
  if (!(error instanceof Error && 'code' in error)) return error;
  const code = nameStorageFailure(error);
  const remedy = code === undefined ? '' : `; ${explainFailure(code)}`;
  return new CommandError(`${dataFolder}: ${error.message}${remedy}`);
}

const restoreOptions = {
  data: dataOption('data folder to restore to; it is created if it is missing'),
};

export const restoreCommand = defineCommand({
  name: 'millrace restore',
  description: [
    'Checks the hash of every file of a backup and copies the files to the data folder. Stop the platform first. ' +
      '`restore` replaces no file: first move away the files that the backup has and, with a database, the folder ' +
      'millrace.db.payloads.',
    'The platform then continues as of the backup: jobs that ended since run again, and jobs, keys and versions made ' +
      'since are gone. Keys that were revoked since are valid again; revoke them once more.',
  ],
  positionals: [{ name: '<folder>', help: 'folder that `millrace backup` has written' }],
  options: restoreOptions,
  examples: ['millrace restore /backups/monday --data /var/lib/millrace'],
  exitCodes: {
    ok: 'restored',
    failed: 'the backup is incomplete or has changed, or the data folder is in use or not empty',
  },
  run: runRestore,
});

async function runRestore({
  positionals,
  values,
}: ParsedArguments<typeof restoreOptions>): Promise<number> {
  const backup = resolve(positionals[0] ?? '');
  const dataFolder = resolve(values.data);
  const { createdAt, files } = await restore({ backup, dataFolder }).catch((error: unknown) => {
    const isSystems = error instanceof Error && 'syscall' in error;
    throw error instanceof BackupError || isSystems
      ? new CommandError(error.message)
      : explainPlatformError(error, restoreOptions);
  });
  const count = files.length === 1 ? '1 file' : `${files.length} files`;
  void print(`restored ${count} of the backup of ${createdAt} to ${dataFolder}\n`);
  return EXIT.ok;
}
