// `--health-port` of `millrace worker`: what serves it is loaded only where the port is asked for.
import { systemClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { HealthServer } from '../worker/health-server.ts';
import type { Worker } from '../worker/worker.ts';
import type { WorkerObserver } from '../worker/worker-observer.ts';
import { CommandError } from './command.ts';
import { integer, text } from './options.ts';

export const healthOptions = {
  healthPort: integer({
    min: 0,
    max: 65_535,
    placeholder: 'PORT',
    env: 'MILLRACE_HEALTH_PORT',
    help: 'serves /healthz, /readyz and /metrics, without a key; 0 chooses a free port; off without it',
  }),
  healthHost: text({
    default: '127.0.0.1',
    placeholder: 'HOST',
    env: 'MILLRACE_HEALTH_HOST',
    help: 'address of the health port; 0.0.0.0 for probes from outside of a container',
  }),
};

export interface HealthPort {
  /** To be handed to the worker when it is created. */
  readonly observer: WorkerObserver;
  /** @throws CommandError if the port cannot be had */
  open(worker: Worker): Promise<void>;
  close(): Promise<void>;
}

interface HealthPortValues {
  healthPort: number | undefined;
  healthHost: string;
  underDev: boolean;
}

/** Undefined where no port is asked for; under `dev`, too, whose workers share one environment. */
export async function prepareHealthPort(
  { healthPort: port, healthHost: host, underDev }: HealthPortValues,
  { log, version }: { log: Log; version: string },
): Promise<HealthPort | undefined> {
  if (port === undefined || underDev) return undefined;
  const { HealthPortError, openHealthServer } = await import('../worker/health-server.ts');
  const { createWorkerMetrics } = await import('../worker/worker-metrics.ts');
  const metrics = createWorkerMetrics({ clock: systemClock, version });
  let server: HealthServer | undefined;
  return {
    observer: metrics.observer,
    async open(worker) {
      const health = () => worker.health();
      const collectMetrics = () => metrics.collect(worker.health());
      try {
        server = await openHealthServer({ host, port, health, collectMetrics, log });
      } catch (error) {
        if (!(error instanceof HealthPortError)) throw error;
        throw new CommandError(`--health-port: ${error.message}`);
      }
      log.info({ host: server.host, port: server.port }, 'health and metrics are served');
    },
    async close() {
      await server?.close();
    },
  };
}
