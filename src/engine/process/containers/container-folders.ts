// Where containers are on disk. The engine's records are in `containers/<id>/<generation>`, which no pod
// has to write to; disks are in `disks`, volumes beside them. A record appears whole and goes whole.
import { randomBytes } from 'node:crypto';
import { access, chmod, mkdir, mkdtemp, rename, rm, rmdir, symlink } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join } from 'node:path';
import { type ContainerSpec, EngineError } from '../../engine.ts';
import { nameDisk, parseDiskName } from '../disk-names.ts';
import { ignoreMissing, isDenied, listNames } from '../folder-listing.ts';
import { giveFolder, type PodUser, provideOwn, provideParent, removeOwn } from '../pod-user.ts';
import { Volumes } from '../volumes.ts';
import { type ContainerFile, readContainerFile, writeContainerFile } from './container-file.ts';

/** Environments hold secrets. */
const OWNER_ONLY = 0o700;
/** Names that are folders in here, and nowhere else. */
const PLAIN_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
/** At the end of the name of a discarded disk: what is in it was written by a pod. */
const DISK_SUFFIX = '.disk';

export interface ContainerFolder {
  spec: ContainerSpec;
  /** Of the engine's records. */
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
  /** `disk`: holds no record of the engine's. */
  kind: 'record' | 'disk';
  /** Of its pod. */
  id: string;
  generation: number;
  /** Where its record was before; its processes know no other name. */
  home: string;
}

export class ContainerFolders {
  readonly #root: string;
  readonly #user: PodUser | undefined;
  readonly #volumes: Volumes;
  /** Of what this object is making just now. */
  readonly #making = new Set<string>();
  /** Disks that an earlier platform's process left; those without a record go with the first sweep. */
  #earlierDisks: Promise<string[]> | undefined;

  /** `root`: made if it is missing. `user`: owner of disks and volumes; default: the platform's. */
  constructor(root: string, user?: PodUser) {
    this.#root = root;
    this.#user = user;
    this.#volumes = new Volumes(root, user);
    this.#earlierDisks = listNames(this.#place('disks'));
    this.#earlierDisks.catch(() => {});
  }

  /** Undefined where no record can be read. */
  async find(id: string): Promise<ContainerFolder | undefined> {
    for (const generation of await this.#listGenerations(id)) {
      const found = await this.#read(this.#place('containers', id, generation));
      if (found && found !== 'damaged') return found;
    }
    return undefined;
  }

  /** Whether the pod has a record, and none that can be read. */
  async isDamaged(id: string): Promise<boolean> {
    for (const generation of await this.#listGenerations(id)) {
      const found = await this.#read(this.#place('containers', id, generation));
      if (found && found !== 'damaged') return false;
    }
    // Listed anew: one that was removed meanwhile is not damaged.
    return (await this.#listGenerations(id)).length > 0;
  }

  listIds(): Promise<string[]> {
    return listNames(this.#place('containers'));
  }

  /** In front of the names of all that its processes know of it. */
  homeOf(id: string): string {
    return `${this.#place('containers', id)}/`;
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
    if (await this.isDamaged(spec.id)) {
      throw new EngineError('unavailable', `a damaged container of ${spec.id} is still there`);
    }
    const making = await this.#openMaking();
    const disk = nameDisk(spec);
    try {
      await this.#furnish(making, { spec, disk });
      if (!(await this.#install(join(making, 'record'), spec)))
        await removeOwn(this.#place('disks', disk));
    } finally {
      await rm(making, { recursive: true, force: true });
      this.#making.delete(making);
    }
  }

  /** Makes disk and volumes ready for a run of the container's. @throws EngineError */
  async prepare({ disk, spec, temporary }: ContainerFolder): Promise<void> {
    await this.#volumes.provide(spec);
    // What it has made of its own disk is its own affair. No folder above is made, should it be gone.
    await mkdir(disk, { mode: OWNER_ONLY }).catch(() => {});
    await mkdir(temporary).catch(() => {});
    if (!this.#user) return;
    await provideOwn(disk, this.#user);
    await giveFolder(temporary, this.#user);
  }

  /** A container's disk that lies beside its record goes to where later ones are. It must not run. */
  async moveDisk(folder: ContainerFolder): Promise<ContainerFolder> {
    const { path, spec } = folder;
    const legacy = join(path, 'disk');
    if (!(await exists(legacy))) return folder;
    await this.#provideParents();
    const isNamed = folder.disk !== legacy;
    const name = isNamed ? basename(folder.disk) : nameDisk(spec);
    const disk = this.#place('disks', name);
    // The name first: a move that was cut off after it is taken up by the next start.
    if (!isNamed) await writeContainerFile(path, { spec, disk: name });
    await rename(legacy, disk);
    return { ...folder, disk, temporary: join(disk, 'tmp') };
  }

  /** From now on `listDiscarded` alone finds it and its disks. */
  async discard(id: string): Promise<void> {
    if (!PLAIN_NAME.test(id)) return;
    const own = this.#place('containers', id);
    for (const generation of await this.#listGenerations(id)) {
      await this.#discardOne(join(own, generation), `${id}@${generation}`);
    }
    for (const name of await listNames(this.#place('disks'))) {
      const owner = parseDiskName(name);
      if (owner?.id !== id) continue;
      await this.#discardOne(this.#place('disks', name), `${id}@${owner.generation}`, DISK_SUFFIX);
    }
    // One that is made just now is in it.
    await rmdir(own)
      .catch(() => rm(own))
      .catch(() => {});
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
          kind: name.endsWith(DISK_SUFFIX) ? 'disk' : 'record',
          id: was,
          generation: Number(generation),
          home: this.#place('containers', was, generation),
        };
      });
  }

  async removeVolumes(id: string): Promise<void> {
    if (PLAIN_NAME.test(id)) await this.#volumes.remove(id);
  }

  /** What a platform that died has left of containers that it was making. */
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
      if (known !== 'damaged' && known?.disk !== disk) await removeOwn(disk);
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

  async #furnish(path: string, file: ContainerFile & { disk: string }): Promise<void> {
    const { spec } = file;
    const disk = join(path, 'disk');
    const record = join(path, 'record');
    for (const made of [disk, record]) await mkdir(made, { mode: OWNER_ONLY });
    await this.#volumes.provide(spec);
    for (const mount of spec.mounts) {
      // Nobody but root could put a folder where the path says; it is found below the disk instead.
      const link = join(disk, ...listSteps(mount.path));
      await mkdir(dirname(link), { recursive: true });
      await symlink(this.#volumes.locate(spec.id, mount), link);
    }
    await mkdir(join(disk, 'tmp'), { recursive: true });
    await this.#provideParents();
    if (this.#user) await provideOwn(disk, this.#user);
    await writeContainerFile(record, file);
    await rename(disk, this.#place('disks', file.disk));
  }

  async #provideParents(): Promise<void> {
    for (const name of ['', 'disks']) await provideParent(this.#place(name), this.#user);
  }

  /** @returns false where another call was faster, which nobody may wait for any more */
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

  async #discardOne(path: string, name: string, suffix = ''): Promise<void> {
    await provideParent(this.#place('discarded'), this.#user);
    const random = randomBytes(6).toString('hex');
    const target = this.#place('discarded', `${name}@${random}${suffix}`);
    const move = () => rename(path, target).catch(ignoreMissing);
    await move().catch(async (error: unknown) => {
      if (!isDenied(error)) throw error;
      for (const closed of [dirname(path), path]) await chmod(closed, OWNER_ONLY);
      await move();
    });
  }

  async #read(path: string): Promise<ContainerFolder | 'damaged' | undefined> {
    const file = await readContainerFile(path);
    if (!file || file === 'damaged') return file;
    const { spec } = file;
    const disk = file.disk === null ? join(path, 'disk') : this.#place('disks', file.disk);
    const [mount] = spec.mounts;
    return {
      spec,
      path,
      disk,
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

/** Of a path: a slash at its end would ask for what is behind the link. */
function listSteps(path: string): string[] {
  return path.split('/').filter((step) => step !== '' && step !== '.');
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
