// The option of the time between the signal that ends a platform and its stop.
import { integer, type OptionValues } from '../options.ts';
import type { nodeOptions } from './node-options.ts';

/** Balancers check every few seconds; a Kubernetes cluster needs a second or two to tell its machines. */
const NODE_DELAY_MS = 5_000;

export const shutdownOptions = {
  shutdownDelayMs: integer({
    ...{ min: 0, max: 3_600_000, placeholder: 'MS', env: 'MILLRACE_SHUTDOWN_DELAY_MS' },
    section: 'advanced',
    help: `time from SIGTERM to the stop, ms: /readyz answers 503, and requests are served, so that load balancers and clients leave; default: ${NODE_DELAY_MS} with --node-url, else 0`,
  }),
};

/** A platform that is not one of several nodes has no other to which its clients could go. */
export function readShutdownDelay(
  values: OptionValues<typeof shutdownOptions> & Pick<OptionValues<typeof nodeOptions>, 'nodeUrl'>,
): number {
  const { nodeUrl, shutdownDelayMs } = values;
  return shutdownDelayMs ?? (nodeUrl === undefined ? 0 : NODE_DELAY_MS);
}
