// `millrace serve`: runs the platform until a signal ends it.
import { flushCompileCache } from 'node:module';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../../base/log.ts';
import { packageVersion } from '../../base/package-info.ts';
import { letHeapGrow, optimizeEarly } from '../../base/v8-flags.ts';
import { countLeftPods, type LeftPods } from '../../platform/machine.ts';
import { openPlatform } from '../../platform/platform.ts';
import type { RunningPlatform } from '../../platform/running-platform.ts';
import { defineCommand, EXIT } from '../command.ts';
import type { ParsedArguments } from '../option-parser.ts';
import { CertificateFiles } from '../options/certificates.ts';
import { readKubernetes } from '../options/engine-options.ts';
import { readGrpcTls, readTls } from '../options/listener-options.ts';
import { explainPlatformError } from '../options/platform-option.ts';
import {
  composeOptions,
  readShutdownDelay,
  type ServeStart,
  type ServeValues,
  serveOptions,
} from '../options/serve-options.ts';
import { UsageError } from '../options.ts';
import { outliveOutput, print } from '../output.ts';
import { exitOn, listenForStop, type StopSignal, type StopSignals } from '../stop-signals.ts';
import { createTerminalLog } from '../terminal-log.ts';
import { findUsableDevices } from '../worker/worker-machine.ts';

/** Names of endpoints that the start prints. */
const SHOWN_ENDPOINTS = 20;

export const serveCommand = defineCommand({
  name: 'millrace serve',
  description: [
    'Serves the job API and the worker API under /v2/<endpoint>/; pods, endpoints, templates, the catalog ' +
      'and keys under /v1 and /v2; and /openapi.json, /healthz, /readyz and /metrics. ' +
      'Pods and the workers of endpoints run on the --engine, and keep running while the platform is down. ' +
      'Everything that the platform has acknowledged is on disk: you may kill and restart the platform at any time.',
    'The first start creates an admin key and a worker key. It prints them once, or writes them to ' +
      '--key-file as the lines MILLRACE_ADMIN_KEY=… and MILLRACE_WORKER_KEY=…. With --endpoint, the worker ' +
      'key works only for the declared endpoints.',
    'On SIGTERM or SIGINT the platform answers its long polls and streams, then exits. A second signal, a ' +
      'second or more later, ends it at once. With --shutdown-delay-ms the platform first serves requests for that time, ' +
      'and the second signal ends this time only. No signal loses anything acknowledged. Pods keep running; ' +
      '`millrace down` stops the platform and its pods.',
  ],
  options: serveOptions,
  examples: [
    'millrace serve --endpoint echo --endpoint image',
    'millrace serve --host 0.0.0.0 --data /var/lib/millrace --key-file /etc/millrace/keys',
    'millrace serve --tls-cert cert.pem --tls-key key.pem --port 8443',
    'millrace serve --grpc-port 8001',
    'millrace serve --store postgres://millrace@db.example.com/millrace?sslmode=verify-full',
  ],
  exitCodes: {
    ok: 'stopped by a signal',
    failed:
      'the port, the data folder or the database is in use, or cannot be used; the disk failed to store a commit; or a second SIGTERM or SIGHUP',
    interrupted: 'a second Ctrl-C',
  },
  run,
});

async function run({ values }: ParsedArguments<typeof serveOptions>): Promise<number> {
  outliveOutput();
  letHeapGrow();
  const tls = readTls(values);
  const { leaseMs, renewEveryMs } = values;
  if (renewEveryMs >= leaseMs) {
    throw new UsageError(`--renew-every-ms: must be less than --lease-ms, which is ${leaseMs}`);
  }
  const signals = listenForStop();
  const delay = new ShutdownDelay(signals);
  const log = createTerminalLog(values.logLevel);
  const { grpcClientCa, tlsCert, tlsKey } = values;
  const certificates = tls && new CertificateFiles([tlsCert, tlsKey, grpcClientCa], log);
  const platform = await open({ values, tls, log });
  try {
    certificates?.watch(() => renewCertificates(values, platform));
    const declared = listNames(platform.endpoints.all()) || NO_ENDPOINTS;
    const ready = `Millrace ${packageVersion()} is ready at ${platform.url}`;
    const grpc = platform.grpcUrl === undefined ? [] : [`Workers over gRPC at ${platform.grpcUrl}`];
    const keys = describeKeys(platform, values.keyFile);
    void print(`${[ready, ...grpc, declared, ...keys].join('\n')}\n`);
    // Not at the end, because a killed platform has none.
    flushCompileCache();
    optimizeEarly();
    await signals.first;
    await letClientsLeave({ platform, delay, ms: readShutdownDelay(values), log });
    log.info('platform stopping');
  } finally {
    certificates?.stop();
    await platform.close();
    signals.release();
  }
  const { dockerHost, engine } = values;
  const kubernetes = readKubernetes(values);
  await tellLeftPods({
    kind: engine,
    dockerHost,
    kubernetes,
    dataFolder: resolve(values.data),
    log,
  });
  return EXIT.ok;
}

/** @throws UsageError, and the error of the TLS library */
function renewCertificates(values: ServeValues, platform: RunningPlatform): void {
  const tls = readTls(values);
  if (tls) platform.useCertificate({ ...tls, ...readGrpcTls(values, tls) });
}

interface Leaving {
  platform: RunningPlatform;
  delay: ShutdownDelay;
  ms: number;
  log: Log;
}

async function letClientsLeave({ delay, log, ms, platform }: Leaving): Promise<void> {
  if (ms === 0) return;
  log.info({ delayMs: ms }, 'platform shutdown announced');
  platform.announceShutdown();
  await delay.wait(ms);
}

/** @throws UsageError, CommandError */
async function open(start: ServeStart): Promise<RunningPlatform> {
  const given = composeOptions(start);
  const { engine } = start.values;
  try {
    const kubernetes = readKubernetes(start.values);
    const own = engine === 'none' || kubernetes ? [] : await findUsableDevices(start.log);
    const devices = kubernetes?.devices ?? own;
    const compute = { ...given.compute, engine, devices, kubernetes };
    return await openPlatform({ ...given, compute });
  } catch (error) {
    throw explainPlatformError(error, serveOptions);
  }
}

const NO_ENDPOINTS =
  'No endpoint exists yet; create one with `millrace deploy handler.ts` or `millrace endpoints create`, or declare one with --endpoint ID';

/** An empty text without endpoints. */
export function listNames(endpoints: readonly LiveEndpoint[]): string {
  const names = endpoints.map(
    ({ deployment, id, settings }) => deployment?.name ?? settings.name ?? id,
  );
  const more = names.length - SHOWN_ENDPOINTS;
  const shown = names.slice(0, SHOWN_ENDPOINTS).join(', ');
  return shown && `Endpoints: ${shown}${more > 0 ? ` and ${more} more` : ''}`;
}

type LiveEndpoint = ReturnType<RunningPlatform['endpoints']['all']>[number];

function describeKeys({ firstKeys }: RunningPlatform, keyFile: string | undefined): string[] {
  if (!firstKeys) return [];
  const { admin, origin, worker } = firstKeys;
  if (origin !== 'generated') {
    return [`Keys ${origin === 'written' ? 'made and written to' : 'read from'} ${keyFile}`];
  }
  return [
    'These keys are shown only once:',
    `MILLRACE_ADMIN_KEY=${admin}`,
    `MILLRACE_WORKER_KEY=${worker}`,
  ];
}

export class ShutdownDelay {
  #waiting: AbortController | undefined;

  /** A second signal ends the wait or, outside it, the process; a third one ends the process. */
  constructor(signals: StopSignals, exit: (signal: StopSignal) => void = exitOn) {
    void signals.second.then((signal) => {
      if (this.#waiting) this.#waiting.abort();
      else exit(signal);
    });
    void signals.third.then(exit);
  }

  /** Resolves after this time, or with the second signal. */
  async wait(ms: number): Promise<void> {
    const waiting = new AbortController();
    this.#waiting = waiting;
    await sleep(ms, undefined, { signal: waiting.signal }).catch(() => {});
    this.#waiting = undefined;
  }
}

async function tellLeftPods(place: LeftPods): Promise<void> {
  const pods = await countLeftPods(place);
  if (pods === 0) return;
  place.log.info(
    { pods },
    'pods keep running without the platform; stop them with `millrace down`, or start the platform again',
  );
}
