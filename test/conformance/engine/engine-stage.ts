// The fixture of the engine suite: an isolated engine, and helpers for its tests.
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { quoteWord } from '../../../src/base/text/shell-words.ts';
import type {
  Container,
  ContainerMount,
  ContainerSpec,
  Engine,
} from '../../../src/engine/engine.ts';
import { until } from '../../support/until.ts';

/** The environment of an engine: a folder, a socket and a platform name. New for each test. */
export interface EngineGround {
  /** Opens another engine object in the same environment, as a platform does after a crash. */
  open(): Engine;
  /** Makes the folder a network volume, and returns its source. Default: the folder's path. */
  share?(folder: string): Promise<string>;
  /** Called after all containers are removed and all engines are closed. */
  close(): Promise<void>;
}

export interface EngineUnderTest {
  name: string;
  /** An image with `sh`, `sleep`, `setsid` and Node; its processes start in a folder on the container's disk. */
  image: string;
  /** The command for Node in a container. */
  node: string;
  /** Prefix of mount paths in scripts: empty, or `.` for the start folder. */
  mountRoot: '' | '.';
  /** Environment variables that the engine adds to those of the spec. */
  addedVariables: readonly string[];
  /** UUIDs of available GPUs; if empty, the GPU tests are skipped. */
  gpus: readonly string[];
  /** Whether this machine enforces memory limits. */
  limitsMemory: boolean;
  /** Whether a start can have other GPUs than the one before. */
  gpusAtStart?: boolean;
  /** `lost`: each start has a new disk and a new log. Default: `kept`. */
  diskOverStop?: 'kept' | 'lost';
  /** Times from a call to the end of the platform, ms; none: these tests do not run. Default: several. */
  cutDelaysMs?: readonly number[];
  open(): Promise<EngineGround>;
}

/** Path of the suite's mounts, relative to `mountRoot`. */
export const MOUNT = '/workspace';
const LOOKING = { everyMs: 20, limitMs: 80_000 };

/** Returns a command line that runs the script with `sh`. */
export function shell(script: string): string {
  return `sh -c ${quoteWord(script)}`;
}

export interface Pipe {
  /** Resolves when the last writer has closed the pipe. */
  readonly closed: Promise<void>;
  /** Opens and closes the pipe, in case no process ever opened it. */
  release(): void;
}

export class EngineStage {
  readonly under: EngineUnderTest;
  #ground: EngineGround | undefined;
  #shared = '';
  readonly #readers: Socket[] = [];
  #source = '';
  #opened: Engine[] = [];
  #made = 0;

  constructor(under: EngineUnderTest) {
    this.under = under;
  }

  async set(): Promise<void> {
    this.#shared = await mkdtemp(join(tmpdir(), 'millrace-shared-'));
    // Pods may run as another user.
    await chmod(this.#shared, 0o777);
    this.#ground = await this.under.open();
    this.#source = (await this.#ground.share?.(this.#shared)) ?? this.#shared;
    this.#opened = [this.#ground.open()];
  }

  async clear(): Promise<void> {
    for (const { id } of await this.engine.list()) await this.engine.remove(id, 'remove');
    for (const engine of this.#opened) await engine.close();
    await this.#ground?.close();
    for (const reader of this.#readers.splice(0)) reader.destroy();
    await rm(this.#shared, { recursive: true, force: true });
  }

  /** The engine object of the current platform process. */
  get engine(): Engine {
    const engine = this.#opened.at(-1);
    if (!engine) throw new Error('no engine is open');
    return engine;
  }

  /** A folder on this machine for network mounts. */
  get shared(): string {
    return this.#shared;
  }

  /** The shared folder as a mount of a container. */
  get sharedMount(): ContainerMount {
    return { kind: 'network', source: this.#source, path: MOUNT };
  }

  /** Path of the suite's mount in scripts. */
  get mount(): string {
    return `${this.under.mountRoot}${MOUNT}`;
  }

  /** Simulates a platform crash: opens a new engine object. */
  reopen(): Engine {
    if (!this.#ground) throw new Error('the stage is not set');
    this.#opened.push(this.#ground.open());
    return this.engine;
  }

  /** Returns the spec of a waiting container with a unique ID; `part` overrides members. */
  spec(part: Partial<ContainerSpec> = {}): ContainerSpec {
    return {
      id: `pod_test-${++this.#made}`,
      generation: 1,
      labels: { color: 'green' },
      image: this.under.image,
      args: shell('echo waiting; exec sleep 1000'),
      handler: null,
      env: {},
      ports: [],
      diskGb: 1,
      registry: null,
      mounts: [],
      gpus: [],
      limits: null,
      network: null,
      ...part,
    };
  }

  /** Creates and starts a container that runs the script with `sh`. */
  run(script: string, part: Partial<ContainerSpec> = {}): Promise<ContainerSpec> {
    return this.start(this.spec({ args: shell(script), ...part }));
  }

  async start(spec: ContainerSpec): Promise<ContainerSpec> {
    await this.engine.create(spec);
    await this.engine.start(spec.id);
    return spec;
  }

  /** Resolves when the container matches. */
  async until(id: string, wanted: (container: Container) => boolean): Promise<Container> {
    let container: Container | undefined;
    try {
      return await until(async () => {
        container = await this.engine.inspect(id);
        return container && wanted(container) && container;
      }, LOOKING);
    } catch (cause) {
      throw new Error(`${wanted}: ${JSON.stringify(container)}`, { cause });
    }
  }

  untilExited(id: string): Promise<Container> {
    return this.until(id, ({ state }) => state === 'exited');
  }

  async printed(id: string): Promise<string> {
    return Buffer.from(await this.engine.readLog(id, 100_000)).toString();
  }

  /** Resolves with the log when it contains the text. */
  async untilPrinted(id: string, text: string): Promise<string> {
    let printed = '';
    try {
      return await until(async () => {
        printed = await this.printed(id);
        return printed.includes(text) && printed;
      }, LOOKING);
    } catch (cause) {
      throw new Error(`it has not printed ${text}: ${printed}`, { cause });
    }
  }

  /**
   * Creates a pipe in the shared folder. It shows a test when all processes that hold it have ended. It is opened at once
   * and without a wait: an open that waits for a writer would hold a thread of Node's pool, for ever if none comes.
   */
  async makePipe(name: string): Promise<Pipe> {
    const path = join(this.#shared, name);
    await promisify(execFile)('mkfifo', ['-m', '666', path]);
    const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const reader = new Socket({ fd, readable: true, writable: false }).resume();
    this.#readers.push(reader);
    return { closed: once(reader, 'end').then(() => {}), release: () => touchPipe(path) };
  }
}

function touchPipe(path: string): void {
  try {
    closeSync(openSync(path, constants.O_WRONLY | constants.O_NONBLOCK));
  } catch {
    // Another process opened and closed the pipe, and the reader is gone.
  }
}
