// Where containers are on disk: a folder each, with its spec, its disk, its log and its runs, and beside
// them the volumes. A folder appears whole and goes whole, so that being cut off leaves none by halves.
import { randomBytes } from 'node:crypto';
import {
  access,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  rmdir,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { dirname, isAbsolute, join } from 'node:path';
import { z } from 'zod';
import { type ContainerMount, type ContainerSpec, EngineError } from '../engine.ts';
import { removeTree } from './remove-tree.ts';

/** Environments hold secrets. */
const OWNER_ONLY = 0o700;
const SPEC_FILE = 'container.json';
/** Names that are folders in here, and nowhere else. */
const PLAIN_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export interface ContainerFolder {
  spec: ContainerSpec;
  path: string;
  disk: string;
  temporary: string;
  log: string;
  /** Of its mount; undefined without one. */
  mount: string | undefined;
}

/** Of a container that was removed. */
export interface DiscardedFolder {
  path: string;
  /** Where it was before; its processes know no other name. */
  home: string;
}

const specFile: z.ZodType<ContainerSpec> = z.object({
  id: z.string(),
  generation: z.int(),
  labels: z.record(z.string(), z.string()),
  image: z.string(),
  args: z.string(),
  handler: z.string().nullable(),
  env: z.record(z.string(), z.string()),
  ports: z.array(z.object({ private: z.int(), protocol: z.enum(['http', 'tcp', 'udp']) })),
  diskGb: z.number(),
  registry: z.object({ server: z.string(), username: z.string(), password: z.string() }).nullable(),
  mounts: z.array(
    z.object({ kind: z.enum(['persistent', 'network']), source: z.string(), path: z.string() }),
  ),
  gpus: z.array(z.string()),
  limits: z.object({ vcpus: z.number(), memoryGb: z.number() }).nullable(),
  network: z.string().nullable(),
});

export class ContainerFolders {
  readonly #root: string;
  /** Of what this object is making just now. */
  readonly #making = new Set<string>();

  /** `root`: made if it is missing. */
  constructor(root: string) {
    this.#root = root;
  }

  async find(id: string): Promise<ContainerFolder | undefined> {
    if (!PLAIN_NAME.test(id)) return undefined;
    for (const generation of await listNames(this.#place('containers', id))) {
      const found = await this.#read(this.#place('containers', id, generation));
      if (found) return found;
    }
    return undefined;
  }

  listIds(): Promise<string[]> {
    return listNames(this.#place('containers'));
  }

  /** Leaves one of the same generation as it is. @throws EngineError */
  async make(spec: ContainerSpec): Promise<void> {
    checkNames(spec);
    const known = await this.find(spec.id);
    if (known?.spec.generation === spec.generation) return;
    if (known) {
      const there = `generation ${known.spec.generation} of ${spec.id} is still there`;
      throw new EngineError('unavailable', there);
    }
    const making = await this.#openMaking();
    try {
      await this.#furnish(making, spec);
      await this.#install(making, spec);
    } finally {
      await rm(making, { recursive: true, force: true });
      this.#making.delete(making);
    }
  }

  /** Whether the folders of its mounts are there. @throws EngineError */
  async checkMounts({ id, mounts }: ContainerSpec): Promise<void> {
    for (const mount of mounts) {
      const path = this.#locate(id, mount);
      if (mount.kind !== 'network' || !isAbsolute(mount.source)) {
        await mkdir(path, { recursive: true, mode: OWNER_ONLY });
      } else if (!(await exists(path))) {
        throw new EngineError('unavailable', `the network volume's folder ${path} is not there`);
      }
    }
  }

  /** From now on `listDiscarded` alone finds it. */
  async discard(id: string): Promise<void> {
    if (!PLAIN_NAME.test(id)) return;
    const own = this.#place('containers', id);
    for (const generation of await listNames(own)) {
      await mkdir(this.#place('discarded'), { recursive: true, mode: OWNER_ONLY });
      const name = `${id}@${generation}@${randomBytes(6).toString('hex')}`;
      await rename(join(own, generation), this.#place('discarded', name)).catch(ignoreMissing);
    }
    // One that is made just now is in it.
    await rmdir(own).catch(() => {});
  }

  /** Of one id, or of all. */
  async listDiscarded(id?: string): Promise<DiscardedFolder[]> {
    const names = await listNames(this.#place('discarded'));
    return names
      .filter((name) => id === undefined || name.startsWith(`${id}@`))
      .map((name) => {
        const [was = '', generation = ''] = name.split('@');
        return {
          path: this.#place('discarded', name),
          home: this.#place('containers', was, generation),
        };
      });
  }

  async removeVolumes(id: string): Promise<void> {
    if (!PLAIN_NAME.test(id)) return;
    await removeTree(this.#place('volumes', id));
  }

  /** What a platform that died has left of containers that it was making. */
  async sweep(): Promise<void> {
    for (const name of await listNames(this.#place('new'))) {
      const path = this.#place('new', name);
      if (!this.#making.has(path)) await rm(path, { recursive: true, force: true });
    }
  }

  async #openMaking(): Promise<string> {
    await mkdir(this.#place('new'), { recursive: true, mode: OWNER_ONLY });
    const making = await mkdtemp(this.#place('new', 'container-'));
    this.#making.add(making);
    return making;
  }

  async #furnish(path: string, spec: ContainerSpec): Promise<void> {
    await mkdir(join(path, 'disk'), { mode: OWNER_ONLY });
    await this.checkMounts(spec);
    for (const mount of spec.mounts) {
      // Nobody but root could put a folder where the path says; it is found below the disk instead.
      const link = join(path, 'disk', ...listSteps(mount.path));
      await mkdir(dirname(link), { recursive: true });
      await symlink(this.#locate(spec.id, mount), link);
    }
    await mkdir(join(path, 'disk/tmp'), { recursive: true });
    await writeFile(join(path, SPEC_FILE), JSON.stringify(spec), { mode: 0o600, flush: true });
  }

  async #install(making: string, spec: ContainerSpec): Promise<void> {
    const target = this.#place('containers', spec.id, `${spec.generation}`);
    await mkdir(dirname(target), { recursive: true, mode: OWNER_ONLY });
    try {
      await rename(making, target);
    } catch (error) {
      // Somebody was faster, whom nobody waits for any more.
      if (!(await this.#read(target))) throw error;
    }
  }

  #locate(id: string, { kind, source }: ContainerMount): string {
    if (kind === 'persistent') return this.#place('volumes', id, source);
    return isAbsolute(source) ? source : this.#place('network-volumes', source);
  }

  async #read(path: string): Promise<ContainerFolder | undefined> {
    const text = await readFile(join(path, SPEC_FILE), 'utf8').catch(ignoreMissing);
    if (text === undefined) return undefined;
    const spec = specFile.parse(JSON.parse(text));
    const disk = join(path, 'disk');
    const [mount] = spec.mounts;
    return {
      spec,
      path,
      disk,
      temporary: join(disk, 'tmp'),
      log: join(path, 'log'),
      mount: mount && this.#locate(spec.id, mount),
    };
  }

  #place(...names: readonly string[]): string {
    return join(this.#root, ...names);
  }
}

function checkNames({ id, mounts }: ContainerSpec): void {
  if (!PLAIN_NAME.test(id)) throw new EngineError('refused', `${id} cannot be a pod's id`);
  for (const { path, source } of mounts) {
    if (!isAbsolute(source) && !PLAIN_NAME.test(source)) {
      throw new EngineError('refused', `${source} cannot be a volume's name`);
    }
    const steps = listSteps(path);
    if (!isAbsolute(path) || steps.length === 0 || steps.includes('..')) {
      throw new EngineError('refused', `${path} cannot be a mount's path`);
    }
  }
}

/** Of a path: a slash at its end would ask for what is behind the link. */
function listSteps(path: string): string[] {
  return path.split('/').filter((step) => step !== '' && step !== '.');
}

async function listNames(folder: string): Promise<string[]> {
  return (await readdir(folder).catch(ignoreMissing)) ?? [];
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

function ignoreMissing(error: unknown): undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code !== 'ENOENT' && code !== 'ENOTDIR') throw error;
}
