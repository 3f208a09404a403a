// The folders behind a container's mounts: its own volumes, which outlive it, and network volumes,
// which existed before.
import { access } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { type ContainerMount, type ContainerSpec, EngineError } from '../engine.ts';
import { listPaths } from './folder-listing.ts';
import { type PodUser, provideOwn, provideParent, removeOwn } from './pod-user.ts';

/** Of volumes that the platform names. */
const PLAIN_NAME = /^network-[0-9a-f]{24}$/;

export class VolumeFolders {
  readonly #root: string;
  readonly #user: PodUser | undefined;

  constructor(root: string, user: PodUser | undefined) {
    this.#root = root;
    this.#user = user;
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
        await provideOwn(path, this.#user);
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
    for (const path of await listPaths(names)) await removeOwn(path);
    await removeOwn(names);
  }

  /** Removes the volume of a user with its content. */
  async removeNetwork(source: string): Promise<void> {
    if (!PLAIN_NAME.test(source))
      throw new EngineError('refused', `${source} is not a volume name`);
    await removeOwn(join(this.#root, 'network-volumes', source));
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
