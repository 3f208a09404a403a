// The link to the platform that the options name, for worker processes and their supervisor.
import type { Log } from '../base/log.ts';
import { createHttpLink } from '../transport/http-link.ts';
import { UsageError } from './options.ts';
import { readPem } from './pem-file.ts';

interface LinkValues {
  url: string;
  endpoint: string;
  key: string;
  ca: string | undefined;
}

/** @throws UsageError */
export function openLink({ ca, endpoint, key, url }: LinkValues, log: Log) {
  const tls = ca === undefined ? undefined : { ca: readPem('--ca', ca) };
  try {
    return createHttpLink({ url, endpointId: endpoint, key, log, ...(tls && { tls }) });
  } catch (error) {
    throw new UsageError(`--url: ${error instanceof Error ? error.message : String(error)}`);
  }
}
