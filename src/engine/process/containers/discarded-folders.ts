// The folders of removed containers, which are moved here first because their removal can take long or
// fail.
import { randomBytes } from 'node:crypto';
import { chmod, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ignoreMissing, isDenied, listNames } from '../folder-listing.ts';
import { type PodUser, provideParent } from '../pod-user.ts';

/** Environments contain secrets. */
const OWNER_ONLY = 0o700;
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

export class DiscardedFolders {
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
