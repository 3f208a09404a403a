// The folders of containers on disk. The engine's records are in `containers/<id>/<generation>`,
// which no pod needs to write to; disks and volumes are in folders beside it. A record appears and
// disappears as a whole.
import { randomBytes } from 'node:crypto';
import {
  chmod,
  mkdir,
  mkdtemp,
  readFile,
  rename,
  rm,
  rmdir,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { z } from 'zod';
import { type ContainerSpec, containerSpec, EngineError } from '../engine.ts';
import { FolderQuotas } from '../folder-quotas.ts';
import {
  chownFolder,
  ignoreMissing,
  isDenied,
  listNames,
  type PodUser,
  provideParent,
  providePodFolder,
  removeAsOwner,
} from './pod-user.ts';
import { VolumeFolders, type VolumeFoldersOptions } from './volume-folders.ts';

/** Environments contain secrets. */
const OWNER_ONLY = 0o700;
/** Names that are safe as folder names. */
const PLAIN_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
const BYTES_PER_GB = 1_073_741_824;

export interface ContainerFolder {
  spec: ContainerSpec;
  /** Folder of the engine's records. */
  path: string;
  disk: string;
  /** The file system holds the disk to the size of the spec. */
  isDiskLimited: boolean;
  temporary: string;
  log: string;
  /** Path of the disk's mount; undefined without one. */
  mount: string | undefined;
}

export class ContainerFolders {
  readonly #root: string;
  readonly #user: PodUser | undefined;
  readonly #volumes: VolumeFolders;
  readonly #discarded: DiscardedFolders;
  readonly #quotas = new FolderQuotas();
  /** Folders that this object is creating at the moment. */
  readonly #making = new Set<string>();
  /**
   * Disks left by an earlier platform process; those without a record are removed in the first
   * sweep.
   */
  #earlierDisks: Promise<string[]> | undefined;

  /**
   * `root` is created if it is missing. `user`: owner of disks and volumes; default: the platform's
   * user.
   */
  constructor({ log, root, user }: VolumeFoldersOptions) {
    this.#root = root;
    this.#user = user;
    this.#volumes = new VolumeFolders({ root, user, log, quotas: this.#quotas });
    this.#discarded = new DiscardedFolders(root, user);
    this.#earlierDisks = listNames(this.#place('disks'));
    this.#earlierDisks.catch(() => {});
  }

  /** Undefined without a readable record. */
  async find(id: string): Promise<ContainerFolder | undefined> {
    for (const generation of await this.#listGenerations(id)) {
      const found = await this.#read(this.#place('containers', id, generation));
      if (found && found !== 'damaged') return found;
    }
    return undefined;
  }

  /** Whether the pod has a record, but none that can be read. */
  async isDamaged(id: string): Promise<boolean> {
    for (const generation of await this.#listGenerations(id)) {
      const found = await this.#read(this.#place('containers', id, generation));
      if (found && found !== 'damaged') return false;
    }
    // Listed again: a container that was removed meanwhile is not damaged.
    return (await this.#listGenerations(id)).length > 0;
  }

  listIds(): Promise<string[]> {
    return listNames(this.#place('containers'));
  }

  /** Prefix of all names that its processes know. */
  homeOf(id: string): string {
    return `${this.#place('containers', id)}/`;
  }

  /** An existing container of the same generation stays unchanged. @throws EngineError */
  async make(spec: ContainerSpec): Promise<void> {
    checkNames(spec);
    const known = await this.find(spec.id);
    if (known?.spec.generation === spec.generation) return;
    if (known) {
      const there = `generation ${known.spec.generation} of ${spec.id} is still there`;
      throw new EngineError('unavailable', there);
    }
    if (await this.isDamaged(spec.id)) {
      throw new EngineError('unavailable', `a damaged container of ${spec.id} is still there`);
    }
    const making = await this.#openMaking();
    const disk = nameDisk(spec);
    try {
      await this.#fill(making, { spec, disk });
      if (!(await this.#install(join(making, 'record'), spec)))
        await this.removeDisk(this.#place('disks', disk));
    } finally {
      await rm(making, { recursive: true, force: true });
      this.#making.delete(making);
    }
  }

  /** Prepares disk and volumes for a run. @throws EngineError */
  async prepare({ disk, spec, temporary }: ContainerFolder): Promise<void> {
    await this.#volumes.provide(spec);
    // The content of an existing disk is the pod's business. Parent folders are not created if they
    // are gone.
    await mkdir(disk, { mode: OWNER_ONLY }).catch(() => {});
    await mkdir(temporary).catch(() => {});
    if (!this.#user) return;
    await providePodFolder(disk, this.#user);
    await chownFolder(temporary, this.#user);
  }

  /** From now on only `listDiscarded` finds it and its disks. */
  async discard(id: string): Promise<void> {
    if (!PLAIN_NAME.test(id)) return;
    const own = this.#place('containers', id);
    for (const generation of await this.#listGenerations(id)) {
      await this.#discarded.add(join(own, generation), `${id}@${generation}`, 'record');
    }
    for (const name of await listNames(this.#place('disks'))) {
      const owner = parseDiskName(name);
      if (owner?.id !== id) continue;
      await this.#discarded.add(this.#place('disks', name), `${id}@${owner.generation}`, 'disk');
    }
    // The folder may contain a container that is being created.
    await rmdir(own)
      .catch(() => rm(own))
      .catch(() => {});
  }

  /** With its limit. */
  removeDisk(path: string): Promise<void> {
    return this.#quotas.remove(path, () => removeAsOwner(path));
  }

  /** Of one ID, or of all. */
  listDiscarded(id?: string): Promise<DiscardedFolder[]> {
    return this.#discarded.list(id);
  }

  async removeVolumes(id: string): Promise<void> {
    if (PLAIN_NAME.test(id)) await this.#volumes.remove(id);
  }

  async removeNetworkVolume(source: string): Promise<void> {
    await this.#volumes.removeNetwork(source);
  }

  listNetworkVolumes(): Promise<string[]> {
    return this.#volumes.listNetwork();
  }

  async growNetworkVolume(source: string, sizeGb: number): Promise<void> {
    await this.#volumes.growNetwork(source, sizeGb);
  }

  /** Removes unfinished containers of a dead platform process. */
  async sweep(): Promise<void> {
    for (const name of await listNames(this.#place('new'))) {
      const path = this.#place('new', name);
      if (!this.#making.has(path)) await rm(path, { recursive: true, force: true });
    }
    const disks = (await this.#earlierDisks) ?? [];
    this.#earlierDisks = undefined;
    for (const name of disks) {
      const owner = parseDiskName(name);
      const record = this.#place('containers', `${owner?.id}`, `${owner?.generation}`);
      const known = await this.#read(record);
      const disk = this.#place('disks', name);
      if (known !== 'damaged' && known?.disk !== disk) await this.removeDisk(disk);
    }
  }

  async #listGenerations(id: string): Promise<string[]> {
    return PLAIN_NAME.test(id) ? listNames(this.#place('containers', id)) : [];
  }

  async #openMaking(): Promise<string> {
    await mkdir(this.#place('new'), { recursive: true, mode: OWNER_ONLY });
    const making = await mkdtemp(this.#place('new', 'container-'));
    this.#making.add(making);
    return making;
  }

  async #fill(path: string, file: { spec: ContainerSpec; disk: string }): Promise<void> {
    const { spec } = file;
    const disk = join(path, 'disk');
    const record = join(path, 'record');
    for (const made of [disk, record]) await mkdir(made, { mode: OWNER_ONLY });
    const { kind } = await this.#quotas.limit(disk, spec.diskGb * BYTES_PER_GB);
    await this.#volumes.provide(spec);
    for (const mount of spec.mounts) {
      // Only root could create a folder at the mount's path, so it is linked below the disk
      // instead.
      const link = join(disk, ...listSteps(mount.path));
      await mkdir(dirname(link), { recursive: true });
      await symlink(this.#volumes.locate(spec.id, mount), link);
    }
    await mkdir(join(disk, 'tmp'), { recursive: true });
    await this.#provideParents();
    if (this.#user) await providePodFolder(disk, this.#user);
    await writeContainerFile(record, { ...file, isDiskLimited: kind === 'enforced' });
    await rename(disk, this.#place('disks', file.disk));
  }

  async #provideParents(): Promise<void> {
    for (const name of ['', 'disks']) await provideParent(this.#place(name), this.#user);
  }

  /** @returns false if another call was faster */
  async #install(making: string, spec: ContainerSpec): Promise<boolean> {
    const target = this.#place('containers', spec.id, `${spec.generation}`);
    await mkdir(dirname(target), { recursive: true, mode: OWNER_ONLY });
    try {
      await rename(making, target);
      return true;
    } catch (error) {
      if (!(await this.#read(target))) throw error;
      return false;
    }
  }

  async #read(path: string): Promise<ContainerFolder | 'damaged' | undefined> {
    const file = await readContainerFile(path);
    if (!file || file === 'damaged') return file;
    const { spec } = file;
    const disk = this.#place('disks', file.disk);
    const [mount] = spec.mounts;
    return {
      spec,
      path,
      disk,
      isDiskLimited: file.isDiskLimited,
      temporary: join(disk, 'tmp'),
      log: join(path, 'log'),
      mount: mount && this.#volumes.locate(spec.id, mount),
    };
  }

  #place(...names: readonly string[]): string {
    return join(this.#root, ...names);
  }
}

function checkNames({ id, mounts }: ContainerSpec): void {
  if (!PLAIN_NAME.test(id)) throw new EngineError('refused', `${id} is not a pod ID`);
  for (const { path, source } of mounts) {
    if (!isAbsolute(source) && !PLAIN_NAME.test(source)) {
      throw new EngineError('refused', `${source} is not a volume name`);
    }
    const steps = listSteps(path);
    if (!isAbsolute(path) || steps.length === 0 || steps.includes('..')) {
      throw new EngineError('refused', `${path} is not a mount path`);
    }
  }
}

/** Without a trailing slash, which would follow the link. */
function listSteps(path: string): string[] {
  return path.split('/').filter((step) => step !== '' && step !== '.');
}

/** Suffix of a discarded disk, whose content a pod has written. */
const DISK_SUFFIX = '.disk';

/** Remains of a removed container. */
export interface DiscardedFolder {
  path: string;
  /** `disk`: contains no record of the engine. */
  kind: 'record' | 'disk';
  /** ID of its pod. */
  id: string;
  generation: number;
  /** Former path of its record; its processes know no other. */
  home: string;
}

/** The folders of removed containers, which are moved here first because their removal can take long or fail. */
class DiscardedFolders {
  readonly #root: string;
  readonly #folder: string;
  readonly #user: PodUser | undefined;

  /** `root`: folder of all the engine's data. */
  constructor(root: string, user: PodUser | undefined) {
    this.#root = root;
    this.#folder = join(root, 'discarded');
    this.#user = user;
  }

  /** Moves the folder here. Does nothing if it does not exist. `container`: `<id>@<generation>`. */
  async add(path: string, container: string, kind: DiscardedFolder['kind']): Promise<void> {
    await provideParent(this.#folder, this.#user);
    const random = randomBytes(6).toString('hex');
    const suffix = kind === 'disk' ? DISK_SUFFIX : '';
    const target = join(this.#folder, `${container}@${random}${suffix}`);
    const move = () => rename(path, target).catch(ignoreMissing);
    await move().catch(async (error: unknown) => {
      if (!isDenied(error)) throw error;
      for (const closed of [dirname(path), path]) await chmod(closed, OWNER_ONLY);
      await move();
    });
  }

  /** Of one ID, or of all. */
  async list(id?: string): Promise<DiscardedFolder[]> {
    const names = await listNames(this.#folder);
    return names
      .filter((name) => id === undefined || name.startsWith(`${id}@`))
      .map((name) => {
        const [was = '', generation = ''] = name.split('@');
        return {
          path: join(this.#folder, name),
          kind: name.endsWith(DISK_SUFFIX) ? 'disk' : 'record',
          id: was,
          generation: Number(generation),
          home: join(this.#root, 'containers', was, generation),
        };
      });
  }
}

/** A pod that runs as the platform's own user can damage the file, so its content is validated. */
const FILE = 'container.json';

const diskName = z.object({ disk: z.string(), isDiskLimited: z.boolean() });

interface ContainerFile {
  spec: ContainerSpec;
  /** Name of the disk. */
  disk: string;
  /** Its disk got a quota when it was made. */
  isDiskLimited: boolean;
}

/** `folder` is `…/<id>/<generation>`. Undefined if it contains no such file. */
async function readContainerFile(folder: string): Promise<ContainerFile | 'damaged' | undefined> {
  try {
    const content: unknown = JSON.parse(await readFile(join(folder, FILE), 'utf8'));
    const spec = containerSpec.parse(content);
    const { disk, isDiskLimited } = diskName.parse(content);
    const isOwn =
      spec.id === basename(dirname(folder)) && `${spec.generation}` === basename(folder);
    return isOwn && isDiskOf(disk, spec) ? { spec, disk, isDiskLimited } : 'damaged';
  } catch (error) {
    return isMissing(error) ? undefined : 'damaged';
  }
}

async function writeContainerFile(
  folder: string,
  { disk, isDiskLimited, spec }: ContainerFile,
): Promise<void> {
  const content = JSON.stringify({ ...spec, disk, isDiskLimited });
  const written = join(folder, `${FILE}.new`);
  await writeFile(written, content, { mode: 0o600, flush: true });
  await rename(written, join(folder, FILE));
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

/**
 * Names of container disks: `<id>.<generation>.<random part>`. The random part gives two calls that create the same
 * container at once separate disks.
 */
const DISK_NAME = /^(.+)\.(\d+)\.[0-9a-f]{12}$/;

type DiskOwner = Pick<ContainerSpec, 'id' | 'generation'>;

function nameDisk({ generation, id }: DiskOwner): string {
  return `${id}.${generation}.${randomBytes(6).toString('hex')}`;
}

/** Undefined for a name that is not a disk's. */
function parseDiskName(name: string): DiskOwner | undefined {
  const [, id, generation] = DISK_NAME.exec(name) ?? [];
  return id === undefined ? undefined : { id, generation: Number(generation) };
}

function isDiskOf(name: string, { generation, id }: DiskOwner): boolean {
  const owner = parseDiskName(name);
  return owner?.id === id && owner.generation === generation;
}
