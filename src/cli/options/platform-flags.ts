// What commands that run a platform or use its data folder share: options, errors that name flags, and the end of a process
// whose database is lost.

import type { Log } from '../../base/log.ts';
import { PlatformOptionError } from '../../platform/option-error.ts';
import { CommandError, EXIT } from '../command.ts';
import { flagName, type OptionTable, text, UsageError } from '../options.ts';

export const dataOption = (help: string) =>
  text({
    default: './.millrace',
    placeholder: 'DIR',
    env: 'MILLRACE_DATA',
    sets: ['dataFolder'],
    help,
  });

export const webhookSecretFileOption = text({
  placeholder: 'FILE',
  env: 'MILLRACE_WEBHOOK_SECRET_FILE',
  sets: ['webhooks.secretFile'],
  help: 'file of the secrets that sign webhooks; default: webhook-secrets in --data',
});

/** Names the flags of the command whose options these are. Returns other errors unchanged. */
export function explainPlatformError(error: unknown, options: OptionTable): unknown {
  if (!(error instanceof PlatformOptionError)) return error;
  const nameFlags = (member: string): string | undefined => {
    const setters = Object.entries(options).filter(([, { sets }]) => sets.includes(member));
    return setters.map(([name]) => flagName(name)).join(', ') || undefined;
  };
  const { fault, option } = error;
  const problem = error.problem.replaceAll(/`([\w.]+)`/g, (text, name) => nameFlags(name) ?? text);
  const message = `${nameFlags(option) ?? option}: ${problem}`;
  return fault === 'invalid' ? new UsageError(message) : new CommandError(message);
}

/**
 * Returns what to do when the store is lost. Closing it would copy pages whose content nobody knows, so the
 * process exits as it is, as if it had been killed.
 */
export function exitOnStoreLoss(log: Log, store: 'file' | 'database' = 'file'): () => void {
  return () => {
    if (store === 'file') {
      log.fatal(
        'the disk failed to store a commit; exiting, because only a new start can read what the disk has',
      );
    } else {
      log.fatal(
        'the database is not as this platform left it; exiting, because only a new start can read it',
      );
    }
    process.exit(EXIT.failed);
  };
}
