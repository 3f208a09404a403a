// `millrace restore`: checks a backup and puts it into the data folder of a platform that does not run.
import { resolve } from 'node:path';
import { BackupError } from '../../platform/backup/manifest.ts';
import { restore } from '../../platform/backup/restore.ts';
import { type Command, CommandError, EXIT } from '../command.ts';
import { checkArguments, parseOptions } from '../option-parser.ts';
import { explainPlatformError } from '../options/platform-flags.ts';
import { text } from '../options.ts';
import { print } from '../output.ts';

const options = {
  data: text({
    default: './.millrace',
    placeholder: 'DIR',
    env: 'MILLRACE_DATA',
    help: 'data folder to restore to; it is created if it is missing',
  }),
};

export const restoreCommand: Command = {
  name: 'millrace restore',
  description: [
    'Checks the hash of every file of a backup and copies the files to the data folder. Stop the platform first. ' +
      '`restore` replaces no file: first move away the files that the backup has and, with a database, the folder ' +
      'millrace.db.payloads.',
    'The platform then continues as of the backup: jobs that ended since run again, and jobs, keys and versions made ' +
      'since are gone. Keys that were revoked since are valid again; revoke them once more.',
  ],
  positionals: [{ name: '<folder>', help: 'folder that `millrace backup` has written' }],
  options,
  examples: ['millrace restore /backups/monday --data /var/lib/millrace'],
  exitCodes: [
    { code: EXIT.ok, meaning: 'restored' },
    {
      code: EXIT.failed,
      meaning: 'the backup is incomplete or has changed, or the data folder is in use or not empty',
    },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { positionals, values } = parseOptions(options, args);
  checkArguments(restoreCommand.positionals, positionals);
  const backup = resolve(positionals[0] ?? '');
  const dataFolder = resolve(values.data);
  const { createdAt, files } = await restore({ backup, dataFolder }).catch((error: unknown) => {
    const isSystems = error instanceof Error && 'syscall' in error;
    throw error instanceof BackupError || isSystems
      ? new CommandError(error.message)
      : explainPlatformError(error);
  });
  const count = files.length === 1 ? '1 file' : `${files.length} files`;
  void print(`restored ${count} of the backup of ${createdAt} to ${dataFolder}\n`);
  return EXIT.ok;
}
