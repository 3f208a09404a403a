// `--health-port` of `millrace worker`. The HTTP server is loaded only if the option is set.
import type { Log } from '../../base/log.ts';
import type { HealthServer, HealthServerOptions } from '../../worker/health/health-server.ts';
import { CommandError } from '../command.ts';

interface HealthPortOptions
  extends Pick<HealthServerOptions, 'liveness' | 'readiness' | 'collectMetrics'> {
  healthPort: number | undefined;
  healthHost: string;
  log: Log;
}

/** Undefined if no port is requested. @throws CommandError if the address cannot be used */
export async function openHealthPort(
  options: HealthPortOptions,
): Promise<HealthServer | undefined> {
  const { healthPort: port, healthHost: host, log, ...sources } = options;
  if (port === undefined) return undefined;
  const { HealthPortError, openHealthServer } = await import(
    '../../worker/health/health-server.ts'
  );
  try {
    const server = await openHealthServer({ ...sources, host, port, log });
    log.info({ host: server.host, port: server.port }, 'health port listening');
    return server;
  } catch (error) {
    if (!(error instanceof HealthPortError)) throw error;
    throw new CommandError(`--health-port: ${error.message}`);
  }
}
