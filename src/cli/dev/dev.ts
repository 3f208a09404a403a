// `millrace dev`: runs the platform in this process and one worker process for each handler file, and
// restarts a worker when its handler changes.
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { readProxies } from '../../base/net/outgoing-proxy.ts';
import { packageVersion } from '../../base/package-info.ts';
import { openPlatform } from '../../platform/platform.ts';
import type { PlatformOptions } from '../../platform/platform-options.ts';
import type { PlatformSeams, RunningPlatform } from '../../platform/running-platform.ts';
import { defineCommand, EXIT } from '../command.ts';
import { inheritEnvironment } from '../config.ts';
import type { ParsedArguments } from '../option-parser.ts';
import {
  composeMembers,
  exitOnStoreLoss,
  explainPlatformError,
} from '../options/platform-option.ts';
import { serveOptions } from '../options/serve-options.ts';
import { flag, integer, text, UsageError } from '../options.ts';
import { outliveOutput, print } from '../output.ts';
import { forceOnSecond, listenForStop, type StopSignals } from '../stop-signals.ts';
import { createTerminalLog, logLevelOption } from '../terminal-log.ts';
import { findUsableDevices } from '../worker/worker-machine.ts';
import { type DevEndpoint, DevHandlers } from './dev-handlers.ts';
import { Activity, describeEndpoint, renderBanner } from './dev-output.ts';
import { FolderWatch } from './folder-watch.ts';
import { findHandlers } from './handler-files.ts';

/** If no output has appeared after this time, the command prints what it waits for. */
const SLOW_START_MS = 3_000;

const options = {
  port: serveOptions.port,
  host: {
    ...serveOptions.host,
    env: undefined,
    help: 'address to listen on; unless it is a loopback address, every call needs the printed key',
  },
  data: text({
    placeholder: 'DIR',
    sets: ['dataFolder'],
    help: 'folder that keeps jobs across restarts; default: a temporary folder',
  }),
  retries: integer({
    min: 0,
    max: 99,
    help: 'automatic retries of a failed job: the same as --max-attempts N+1; 0: none',
  }),
  noConsole: serveOptions.noConsole,
  cors: serveOptions.cors,
  maxAttempts: { ...serveOptions.maxAttempts, env: undefined },
  quiet: flag({ help: 'print no line for a request and for a job that completes' }),
  logLevel: logLevelOption('warn'),
};

export const devCommand = defineCommand({
  name: 'millrace dev',
  description: [
    'Runs a platform and one worker process for each handler file. The name of the file is the ID of its ' +
      'endpoint: handlers/echo.ts is served at /v2/echo/. In a folder, every .ts, .mts, .js and .mjs file is a ' +
      'handler, except *.test.*, *.config.* and *.d.ts; subfolders do not count.',
    'When you change a handler, or a module or Python file in its folder, a new worker starts. As soon as the new ' +
      'worker is ready, the old one finishes its jobs and exits. If the new version cannot be loaded, the old ' +
      'worker continues. A JSON file counts if a module imports it. A new file becomes an endpoint. If you remove a file, ' +
      'its worker stops; if you remove its folder, the worker runs on until the folder is there again.',
    'On a loopback address, calls from this machine need no key and may carry any, unless they come through a proxy or ' +
      'from a page of another site, which --cors can allow. For each endpoint the command prints a curl command. Its input is the first ' +
      "line of the handler's opening comment that is a JSON object.",
    'Each request and each attempt of a job is one line of standard output. Under a failed attempt is its stack, ' +
      'without the frames of Millrace and Node. What handlers log goes to standard error.',
  ],
  positionals: [
    { name: '<files or folders…>', help: 'handler modules, or folders of handler modules' },
  ],
  options,
  examples: ['millrace dev handlers', 'millrace dev src/resize.ts --port 0 --data ./.millrace/dev'],
  exitCodes: {
    ok: 'stopped by a signal',
    failed:
      'the port or the data folder is in use, or cannot be used; or a second SIGTERM or SIGHUP',
    usage: 'wrong usage, no handler found, or two handlers of the same name',
    interrupted: 'a second Ctrl-C',
  },
  run,
});

async function run({ positionals, values }: ParsedArguments<typeof options>): Promise<number> {
  outliveOutput();
  if (findHandlers(positionals).length === 0) {
    throw new UsageError(`no handler found in ${positionals.join(', ')}`);
  }
  const signals = listenForStop();
  const data = openData(values.data);
  // Worker processes exit with this process.
  forceOnSecond(signals, () => data.close());
  try {
    const isLocal = isLoopback(values.host);
    const log = createTerminalLog(values.logLevel);
    // Set before any worker starts, so before any attempt ends.
    let opened: RunningPlatform | undefined;
    let handlers: DevHandlers | undefined;
    const activity = new Activity({
      print: (lines) => void print(lines),
      readStatus: async (endpointId, id) =>
        (await opened?.queue.jobs.record({ endpointId, id }))?.status,
      shown: values.quiet ? 'failures' : 'all',
      now: () => systemClock.now(),
      folder: process.cwd(),
    });
    const seams: PlatformSeams = {
      wrapLink: (link, endpointId) => activity.watch(link, endpointId),
      onAnswered: (request) => activity.noteRequest(request),
      findScaling: (endpointId) => handlers?.scalingOf(endpointId) ?? 'unknown',
      isReady: () => handlers?.areDeclared ?? false,
    };
    const given: PlatformOptions = {
      ...composeMembers(options, values),
      dataFolder: data.folder,
      access: isLocal ? 'keyless-loopback' : 'keys',
      log,
      onStoreLost: exitOnStoreLoss(log),
      keyFile: join(data.folder, 'dev.keys'),
      maxAttempts: readMaxAttempts(values),
      // Callers on this machine need no key, so private addresses are not secret from them.
      webhooks: {
        addresses: isLocal ? 'any' : 'public',
        chooseProxy: readProxies(inheritEnvironment({})),
      },
    };
    const platform = await open(given, seams);
    opened = platform;
    try {
      const { firstKeys } = platform;
      if (!firstKeys) throw new Error('the platform has no key file');
      const key = isLocal ? undefined : firstKeys.admin;
      const { logLevel } = values;
      const terms = { platform, paths: positionals, key, workerKey: firstKeys.worker, logLevel };
      const onHandlers = (given: DevHandlers) => {
        handlers = given;
      };
      await serve({ ...terms, signals, dataNote: data.note, onHandlers });
    } finally {
      await platform.close();
    }
  } finally {
    data.close();
    signals.release();
  }
  return EXIT.ok;
}

/** @throws UsageError */
function readMaxAttempts(given: { maxAttempts: number | undefined; retries: number | undefined }) {
  const { maxAttempts, retries } = given;
  if (retries === undefined) return maxAttempts;
  if (maxAttempts === undefined) return retries + 1;
  throw new UsageError('--retries and --max-attempts exclude each other; give one');
}

/** @throws UsageError, CommandError */
async function open(given: PlatformOptions, seams: PlatformSeams): Promise<RunningPlatform> {
  try {
    return await openPlatform(given, seams);
  } catch (error) {
    throw explainPlatformError(error, options);
  }
}

interface DevSession {
  platform: RunningPlatform;
  paths: readonly string[];
  /** The key to show; undefined if calls need none. */
  key: string | undefined;
  workerKey: string;
  logLevel: string;
  signals: StopSignals;
  dataNote: string;
  onHandlers: (handlers: DevHandlers) => void;
}

async function serve(options: DevSession): Promise<void> {
  const { dataNote, key, logLevel, paths, platform, signals, workerKey } = options;
  const log = createTerminalLog('info');
  const clock = systemClock;
  const handlers = new DevHandlers({
    devices: await findUsableDevices(log),
    platform,
    paths,
    workerKey,
    clock,
    log,
    workerLogLevel: logLevel,
    onAdded: async (endpoint) => {
      const shown = describeEndpoint(await describe(endpoint), { key, url: platform.url });
      void print(`\n${shown}\n\n`);
    },
  });
  const describe = async ({ endpointId, file, isServed }: DevEndpoint) => {
    // The platform may be closing.
    const known = await platform.queue.inputSchema(endpointId).catch(() => undefined);
    const schema = known?.schema ?? null;
    return { endpointId, file, isServed, schema };
  };
  options.onHandlers(handlers);
  const watch = new FolderWatch({
    folders: paths.map(findWatchedFolder),
    clock,
    onChange: (changed) => void handlers.follow(changed),
    onTrouble: (folder, error) =>
      log.warn({ err: error, folder }, 'watching a folder failed, changes in it need a restart'),
  });
  try {
    const leaving = signals.first.then(() => 'leaving' as const);
    const cancelWord = clock.after(SLOW_START_MS, () => tellWhoLoads(handlers, log));
    const started = await Promise.race([handlers.start(), leaving]).finally(cancelWord);
    if (started !== 'leaving') {
      const { url } = platform;
      const terms = { version: packageVersion(), url, key, dataNote };
      const endpoints = await Promise.all(handlers.list().map(describe));
      void print(renderBanner({ ...terms, endpoints }));
    }
    await signals.first;
    const isServing = handlers.list().some(({ isServed }) => isServed);
    if (isServing) log.info('waiting for running jobs; press Ctrl-C again to exit at once');
  } finally {
    watch.close();
    await handlers.stop();
  }
}

function tellWhoLoads(handlers: DevHandlers, log: Log): void {
  const waiting = handlers.list().filter(({ isServed }) => !isServed);
  const endpoints = waiting.map(({ endpointId }) => endpointId).join(', ');
  log.info({ endpoints }, 'handlers still loading');
}

function findWatchedFolder(path: string): string {
  const absolute = resolve(path);
  const isFolder = statSync(absolute, { throwIfNoEntry: false })?.isDirectory() ?? false;
  return isFolder ? absolute : dirname(absolute);
}

interface DataFolder {
  folder: string;
  note: string;
  close(): void;
}

function openData(given: string | undefined): DataFolder {
  if (given !== undefined) {
    const folder = resolve(given);
    return { folder, note: `Jobs are kept in ${folder}`, close: () => {} };
  }
  const folder = mkdtempSync(join(tmpdir(), 'millrace-dev-'));
  return {
    folder,
    note: 'Jobs are lost when this process exits; keep them with --data DIR',
    close: () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Whether calls to this host may omit the key. */
function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host === '127.0.0.1';
}
