// Uses the machine's Docker Engine through its command line: images and containers that end with
// their test.
import { execFile } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';

const LOOK_AGAIN_MS = 50;

/** Returns the command's output without its last line break. @throws Error with the whole output */
export function docker(...args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile('docker', args, { maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      if (!error) return resolve(stdout.trimEnd());
      reject(new Error(`docker ${args.join(' ')}: ${error.message}\n${stdout}`, { cause: stderr }));
    });
  });
}

/** Returns why no engine is available for tests; undefined if one is. */
export function findEngineTrouble(): Promise<string | undefined> {
  const server = docker('version', '--format', '{{.Server.Version}}');
  return server.then(
    () => undefined,
    () => 'no Docker Engine answers',
  );
}

/** Removes the image and all images built on it, including unnamed ones of a build. */
export async function removeWithDescendants(tag: string): Promise<void> {
  const layer = await readFirstLayer(tag);
  let left = await listImagesOn(layer);
  while (left.length > 0) {
    // The engine refuses to remove images that others need; the next turn retries them.
    const refused = await docker('rmi', '--force', ...left).catch((error: unknown) => error);
    const before = left.length;
    left = await listImagesOn(layer);
    if (left.length === before) throw refused;
  }
}

async function listImagesOn(layer: string): Promise<string[]> {
  const ids = (await docker('images', '--quiet', '--no-trunc')).split('\n').filter(Boolean);
  const found: string[] = [];
  for (const id of new Set(ids)) if ((await readFirstLayer(id)) === layer) found.push(id);
  return found;
}

function readFirstLayer(image: string): Promise<string> {
  return docker('image', 'inspect', '--format', '{{index .RootFS.Layers 0}}', image);
}

/** Starts a container on the host's network. */
export class Container {
  readonly id: string;

  private constructor(id: string) {
    this.id = id;
  }

  /** `args`: options of `docker run`, the image, and the arguments of its entry point. */
  static async start(...args: readonly string[]): Promise<Container> {
    return new Container(await docker('run', '--detach', '--network', 'host', ...args));
  }

  exec(...command: readonly string[]): Promise<string> {
    return docker('exec', this.id, ...command);
  }

  inspect(format: string): Promise<string> {
    return docker('inspect', '--format', format, this.id);
  }

  /** Returns standard output and standard error. */
  logs(): Promise<string> {
    return new Promise((resolve, reject) => {
      execFile('docker', ['logs', this.id], (error, stdout, stderr) => {
        if (error) reject(error);
        else resolve(stdout + stderr);
      });
    });
  }

  /** Resolves with the result of `look` when it finds one. @throws Error if the container ends before */
  async until(look: () => Promise<string>, wanted: RegExp): Promise<string> {
    for (;;) {
      const isRunning = (await this.inspect('{{.State.Running}}')) === 'true';
      const seen = await look();
      const found = wanted.exec(seen);
      if (found) return found[1] ?? found[0];
      if (!isRunning)
        throw new Error(`the container ended without ${wanted}: ${await this.logs()}`);
      await delay(LOOK_AGAIN_MS);
    }
  }

  untilEnded(): Promise<string> {
    return docker('wait', this.id);
  }

  untilHealth(wanted: RegExp): Promise<string> {
    return this.until(() => this.inspect('{{.State.Health.Status}}'), wanted);
  }

  untilLog(wanted: RegExp): Promise<string> {
    return this.until(() => this.logs(), wanted);
  }

  async remove(): Promise<void> {
    await docker('rm', '--force', '--volumes', this.id);
  }
}
