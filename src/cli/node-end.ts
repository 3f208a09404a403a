// Ends the process of a node that cannot be a member of its cluster any more.
import type { Log } from '../base/log.ts';
import { EXIT } from './command.ts';

/** Other nodes have taken its shards over, so nothing is left to close. */
export function exitOnNodeEnd(log: Log): (error: Error) => void {
  return ({ message: reason }) => {
    log.fatal({ reason }, 'this node cannot be a member of its cluster any more; exiting');
    process.exit(EXIT.failed);
  };
}
