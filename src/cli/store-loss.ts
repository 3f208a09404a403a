// Ends a process whose database has failed to store a commit.
import type { Log } from '../base/log.ts';
import { EXIT } from './command.ts';

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
