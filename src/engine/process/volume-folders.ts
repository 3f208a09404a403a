// The folders behind a container's mounts: its own volumes, which outlive it, and network volumes,
// which existed before.
import { access } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { type ContainerMount, type ContainerSpec, EngineError } from '../engine.ts';
import { FolderQuotas } from '../folder-quotas.ts';
import {
  listNames,
  listPaths,
  type PodUser,
  provideParent,
  providePodFolder,
  removeAsOwner,
} from './pod-user.ts';

/** Of volumes that the platform names. */
const PLAIN_NAME = /^network-[0-9a-f]{24}$/;
const BYTES_PER_GB = 1_073_741_824;

export interface VolumeFoldersOptions {
  root: string;
  /** Owner of the folders. Default: the platform's user. */
  user: PodUser | undefined;
  /** Of the disks too: two folders must not get one project. Default: of its own. */
  quotas?: FolderQuotas;
  log: Log;
}

export class VolumeFolders {
  readonly #root: string;
  readonly #user: PodUser | undefined;
  readonly #log: Log;
  readonly #quotas: FolderQuotas;
  #isUnlimitedNoted = false;

  constructor({ log, quotas = new FolderQuotas(), root, user }: VolumeFoldersOptions) {
    this.#quotas = quotas;
    this.#root = root;
    this.#user = user;
    this.#log = log;
  }

  locate(id: string, { kind, source }: ContainerMount): string {
    if (kind === 'persistent') return join(this.#root, 'volumes', id, source);
    return isAbsolute(source) ? source : join(this.#root, 'network-volumes', source);
  }

  /** Creates missing folders, except those that the operator named. @throws EngineError */
  async provide({ id, mounts }: ContainerSpec): Promise<void> {
    for (const mount of mounts) {
      const path = this.locate(id, mount);
      if (mount.kind !== 'network' || !isAbsolute(mount.source)) {
        await this.#provideParents(id, mount);
        await providePodFolder(path, this.#user);
        if (mount.sizeGb !== undefined) await this.#limit(path, mount.sizeGb);
      } else if (!(await exists(path))) {
        throw new EngineError(
          'unavailable',
          `the folder ${path} of the network volume does not exist`,
        );
      }
    }
  }

  /** Removes the pod's own volumes. */
  async remove(id: string): Promise<void> {
    const names = join(this.#root, 'volumes', id);
    for (const path of await listPaths(names)) await this.#remove(path);
    await removeAsOwner(names);
  }

  /** Removes the volume of a user with its content. */
  async removeNetwork(source: string): Promise<void> {
    await this.#remove(this.#locateNetwork(source));
  }

  /** Volumes of users that have a folder. */
  async listNetwork(): Promise<string[]> {
    const names = await listNames(join(this.#root, 'network-volumes'));
    return names.filter((name) => PLAIN_NAME.test(name));
  }

  /** Does nothing if the volume has no folder yet: its first container gives it the size. */
  async growNetwork(source: string, sizeGb: number): Promise<void> {
    const path = this.#locateNetwork(source);
    if (await exists(path)) await this.#limit(path, sizeGb);
  }

  /** @throws EngineError for a name that is not the platform's */
  #locateNetwork(source: string): string {
    if (PLAIN_NAME.test(source)) return join(this.#root, 'network-volumes', source);
    throw new EngineError('refused', `${source} is not a volume name`);
  }

  #remove(path: string): Promise<void> {
    return this.#quotas.remove(path, () => removeAsOwner(path));
  }

  /** Without a quota, the volume works as well. */
  async #limit(path: string, sizeGb: number): Promise<void> {
    const outcome = await this.#quotas.limit(path, sizeGb * BYTES_PER_GB);
    if (outcome.kind === 'enforced' || this.#isUnlimitedNoted) return;
    this.#isUnlimitedNoted = true;
    this.#log.info({ path, reason: outcome.why }, 'size of volumes is not enforced');
  }

  async #provideParents(id: string, { kind }: ContainerMount): Promise<void> {
    const parents =
      kind === 'persistent' ? ['', 'volumes', join('volumes', id)] : ['', 'network-volumes'];
    for (const parent of parents) await provideParent(join(this.#root, parent), this.#user);
  }
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
