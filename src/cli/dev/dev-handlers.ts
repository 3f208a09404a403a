// Manages all handler files of `millrace dev`: finds them and decides which ones a change concerns.
import { existsSync } from 'node:fs';
import { dirname, sep } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { PlatformOptionError } from '../../platform/option-error.ts';
import type { RunningPlatform } from '../../platform/running-platform.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import { DevEndpoint } from './dev-endpoint.ts';
import { findHandlers, type HandlerFile } from './handler-files.ts';

interface DevHandlersOptions {
  platform: RunningPlatform;
  /** Files and folders, as given. */
  paths: readonly string[];
  workerKey: string;
  clock: Clock;
  log: Log;
  workerLogLevel: string;
  /** The machine's devices; each worker may use all of them. */
  devices: readonly Device[];
  /** Called when a new file has become an endpoint after the start. */
  onAdded: (endpoint: DevEndpoint) => Promise<void>;
}

export class DevHandlers {
  readonly #options: DevHandlersOptions;
  /** Endpoints by file. */
  readonly #endpoints = new Map<string, DevEndpoint>();
  readonly #leaving = new Set<Promise<void>>();
  /** Number of workers started so far. */
  #workers = 0;
  #areDeclared = false;
  #isStopping = false;

  constructor(options: DevHandlersOptions) {
    this.#options = options;
  }

  /** Resolves when each handler is served or has failed to load. */
  async start(): Promise<void> {
    const found = findHandlers(this.#options.paths);
    const declared = await Promise.all(found.map((handler) => this.#declare(handler)));
    this.#areDeclared = true;
    await Promise.all(declared.map((endpoint) => endpoint?.reload()));
  }

  /** Each handler found at the start has its endpoint, with or without a worker. */
  get areDeclared(): boolean {
    return this.#areDeclared;
  }

  list(): DevEndpoint[] {
    return [...this.#endpoints.values()].sort((a, b) => (a.endpointId < b.endpointId ? -1 : 1));
  }

  /** What is known of the worker of the endpoint, for the reason why its jobs wait. */
  scalingOf(endpointId: string): KnownScaling {
    const all = [...this.#endpoints.values()];
    return all.find((endpoint) => endpoint.endpointId === endpointId)?.scaling ?? 'none';
  }

  /** Adds, removes and reloads handlers after these modules were changed. */
  async follow(changed: ReadonlySet<string>): Promise<void> {
    if (this.#isStopping) return;
    const found = this.#findFiles();
    if (!found) return;
    const files = new Set(found.map(({ path }) => path));
    const handlerFiles = new Set([...files, ...this.#endpoints.keys()]);
    for (const [file, endpoint] of this.#endpoints) {
      // A build may be making the folder again.
      if (!files.has(file) && existsSync(dirname(file))) this.#remove(endpoint);
    }
    const added = found.filter(({ path }) => !this.#endpoints.has(path));
    const change = { changed, handlerFiles };
    const concerned = this.list().filter(({ file }) => isConcerned(file, change));
    await Promise.all([
      ...added.map(async (handler) => {
        this.#options.log.info({ endpoint: handler.endpointId }, 'handler added');
        const endpoint = await this.#declare(handler);
        await endpoint?.reload();
        if (endpoint) await this.#options.onAdded(endpoint);
      }),
      ...concerned.map((endpoint) => endpoint.reload()),
    ]);
  }

  /** Drains; resolves when all workers have exited. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all([...this.list().map((endpoint) => endpoint.stop()), ...this.#leaving]);
  }

  /** Finds the handler files. Undefined if two files have the same endpoint name. */
  #findFiles(): HandlerFile[] | undefined {
    try {
      return findHandlers(this.#options.paths, { missing: 'skipped' });
    } catch (error) {
      this.#options.log.error(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }

  /** Returns undefined if the file's name is no valid endpoint name, or is taken. */
  async #declare({ endpointId, path }: HandlerFile): Promise<DevEndpoint | undefined> {
    const { clock, devices, log, platform, workerKey, workerLogLevel } = this.#options;
    try {
      await platform.declareEndpoint(endpointId);
    } catch (error) {
      const reason = error instanceof PlatformOptionError ? error.problem : String(error);
      log.error({ file: path }, `file name is not a valid endpoint ID: ${reason}`);
      return undefined;
    }
    if (this.#isStopping || this.#endpoints.has(path)) return undefined;
    const endpoint = new DevEndpoint({
      endpointId,
      file: path,
      url: platform.url,
      workerKey,
      link: platform.queue.link(endpointId),
      clock,
      log,
      workerLogLevel,
      devices,
      nextWorkerNumber: () => {
        this.#workers += 1;
        return this.#workers;
      },
    });
    this.#endpoints.set(path, endpoint);
    return endpoint;
  }

  #remove(endpoint: DevEndpoint): void {
    this.#options.log.info({ endpoint: endpoint.endpointId }, 'handler removed');
    this.#endpoints.delete(endpoint.file);
    const left = endpoint.stop().finally(() => this.#leaving.delete(left));
    this.#leaving.add(left);
  }
}

interface FileChange {
  changed: ReadonlySet<string>;
  /** A change of a handler file reloads only its own endpoint. */
  handlerFiles: ReadonlySet<string>;
}

function isConcerned(file: string, { changed, handlerFiles }: FileChange): boolean {
  if (changed.has(file)) return true;
  const folder = dirname(file) + sep;
  for (const path of changed) {
    const isOwn = path.startsWith(folder) && !/\.(test|spec)\.[a-z]+$/.test(path);
    if (isOwn && !handlerFiles.has(path)) return true;
  }
  return false;
}
