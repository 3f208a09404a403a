// The stage of the engines' suite: an engine on ground of its own, and what tests do with it.
import { execFile } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { quoteWord } from '../../../src/base/text/shell-words.ts';
import type { Container, ContainerSpec, Engine } from '../../../src/engine/engine.ts';

/** What an engine is tested on: a folder, a socket and a platform's name. Made anew for each test. */
export interface EngineGround {
  /** One more engine on the same ground: what a platform has when it comes back after a crash. */
  open(): Engine;
  /** After all containers were removed and all engines closed. */
  close(): Promise<void>;
}

export interface EngineUnderTest {
  name: string;
  /** With `sh`, `sleep`, `setsid` and Node; what runs in it begins in a folder on its disk. */
  image: string;
  /** Node, as a command line in a container names it. */
  node: string;
  /** In front of a mount's path where it is used: nothing, or `.` for the folder that it begins in. */
  mountRoot: '' | '.';
  /** Variables that a container has beside those of its spec. */
  addedVariables: readonly string[];
  /** UUIDs that may be asked for; with none, what is about GPUs is left out. */
  gpus: readonly string[];
  /** Whether limits of memory hold here. */
  limitsMemory: boolean;
  open(): Promise<EngineGround>;
}

/** Where the suite's mounts go, below `mountRoot`. */
export const MOUNT = '/workspace';
const LOOK_AGAIN_MS = 20;

/** A command line that runs the script by `sh`. */
export function shell(script: string): string {
  return `sh -c ${quoteWord(script)}`;
}

export interface Pipe {
  /** Somebody opened it for writing, and nobody has it open any more. */
  readonly closed: Promise<void>;
  /** Opens and closes it, for the case that nobody else did. */
  release(): void;
}

export class EngineStage {
  readonly under: EngineUnderTest;
  #ground: EngineGround | undefined;
  #shared = '';
  #opened: Engine[] = [];
  #made = 0;

  constructor(under: EngineUnderTest) {
    this.under = under;
  }

  async set(): Promise<void> {
    this.#shared = await mkdtemp(join(tmpdir(), 'millrace-shared-'));
    // Whoever pods run as writes there.
    await chmod(this.#shared, 0o777);
    this.#ground = await this.under.open();
    this.#opened = [this.#ground.open()];
  }

  async clear(): Promise<void> {
    for (const { id } of await this.engine.list()) await this.engine.remove(id, 'remove');
    for (const engine of this.#opened) await engine.close();
    await this.#ground?.close();
    await rm(this.#shared, { recursive: true, force: true });
  }

  /** The platform's engine now. */
  get engine(): Engine {
    const engine = this.#opened.at(-1);
    if (!engine) throw new Error('no engine is open');
    return engine;
  }

  /** A folder of this machine's, for network mounts. */
  get shared(): string {
    return this.#shared;
  }

  /** How a script names the suite's mount. */
  get mount(): string {
    return `${this.under.mountRoot}${MOUNT}`;
  }

  /** The platform dies, its engine object with it, and comes back with another. */
  reopen(): Engine {
    if (!this.#ground) throw new Error('there is no ground');
    this.#opened.push(this.#ground.open());
    return this.engine;
  }

  /** One that waits, under an id of its own, unless the part says something else. */
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

  /** Creates and starts one that runs the script by `sh`. */
  run(script: string, part: Partial<ContainerSpec> = {}): Promise<ContainerSpec> {
    return this.start(this.spec({ args: shell(script), ...part }));
  }

  async start(spec: ContainerSpec): Promise<ContainerSpec> {
    await this.engine.create(spec);
    await this.engine.start(spec.id);
    return spec;
  }

  /** The container once it is as wanted. The test's own timeout is the limit. */
  async until(id: string, wanted: (container: Container) => boolean): Promise<Container> {
    for (;;) {
      const container = await this.engine.inspect(id);
      if (container && wanted(container)) return container;
      await sleep(LOOK_AGAIN_MS);
    }
  }

  untilExited(id: string): Promise<Container> {
    return this.until(id, ({ state }) => state === 'exited');
  }

  async printed(id: string): Promise<string> {
    return Buffer.from(await this.engine.readLog(id, 100_000)).toString();
  }

  /** All that it printed, once the text is in it. */
  async untilPrinted(id: string, text: string): Promise<string> {
    for (;;) {
      const printed = await this.printed(id);
      if (printed.includes(text)) return printed;
      await sleep(LOOK_AGAIN_MS);
    }
  }

  /** A pipe in the shared folder, by which a test learns that no process lives that has it open. */
  async makePipe(name: string): Promise<Pipe> {
    const path = join(this.#shared, name);
    await promisify(execFile)('mkfifo', ['-m', '666', path]);
    return { closed: readFile(path).then(() => {}), release: () => touchPipe(path) };
  }
}

function touchPipe(path: string): void {
  try {
    closeSync(openSync(path, constants.O_WRONLY | constants.O_NONBLOCK));
  } catch {
    // It has been opened and closed by others, and the reader is gone.
  }
}
