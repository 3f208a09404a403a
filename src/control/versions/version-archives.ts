// Stores archives of versions in parts, one part in a commit, so that jobs wait for one part at most.
import type { ArchiveSummary } from '../../archive/inspect-in-thread.ts';
import type { Log } from '../../base/log.ts';
import { ENDING, type Store, type Transaction, type VersionKey } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';

/** Bytes of one part. */
const PART_BYTES = 1_048_576;
/** Parts that one commit deletes. */
const DELETED_AT_ONCE = 8;

export interface VersionArchivesOptions {
  /** Only the process that manages endpoints writes it. */
  store: Store;
  log: Log;
}

export class VersionArchives {
  readonly #options: VersionArchivesOptions;
  /** Uploads whose version is not stored yet: their parts are not remains. */
  readonly #underWay = new Set<string>();

  constructor(options: VersionArchivesOptions) {
    this.#options = options;
  }

  /**
   * Writes the parts, then runs `finish`, which stores the version. If either fails, removes the parts.
   * @throws StoreUnavailableError, and the errors of `finish`
   */
  async write<T>(key: VersionKey, archive: Uint8Array, finish: () => Promise<T>): Promise<T> {
    const name = nameOf(key);
    this.#underWay.add(name);
    try {
      for (let at = 0; at < archive.length; at += PART_BYTES) {
        const part = archive.subarray(at, at + PART_BYTES);
        const index = at / PART_BYTES;
        await this.#options.store.write((tx) => tx.putVersionPart(key, index, part));
      }
      return await finish();
    } catch (error) {
      await this.remove(key);
      throw error;
    } finally {
      this.#underWay.delete(name);
    }
  }

  /** Undefined if a part is missing: the version has been removed meanwhile. `bytes`: of the archive. */
  async read(key: VersionKey, bytes: number): Promise<Uint8Array[] | undefined> {
    const parts: Uint8Array[] = [];
    for (let left = bytes; left > 0; ) {
      const part = await this.#options.store.read((tx) => tx.versionPart(key, parts.length));
      if (!part || part.length === 0 || part.length > left) return undefined;
      parts.push(part);
      left -= part.length;
    }
    return parts;
  }

  /** What it cannot remove, the next start removes. Never rejects. */
  async remove(key: VersionKey): Promise<void> {
    const { log, store } = this.#options;
    try {
      let isGone = false;
      while (!isGone) {
        isGone = await store.write((tx) => removeSome(tx, key), ENDING);
      }
    } catch (error) {
      log.warn({ ...key, err: error }, 'removing the archive of a version failed');
    }
  }

  /** Removes archives without a version: of interrupted uploads and of deleted endpoints. Never rejects. */
  async sweep(): Promise<void> {
    const { log, store } = this.#options;
    try {
      const remains = await store.read((tx) => {
        const stored = tx.versionsWithParts();
        const versions = tx.each(stored, (key) =>
          tx.resource({ kind: 'version', id: nameOf(key) }),
        );
        return stored.filter((_, index) => !versions[index]);
      });
      const unused: VersionKey[] = [];
      for (const key of remains) if (await this.#removeUnused(key)) unused.push(key);
      if (unused.length > 0) log.info({ archives: unused.length }, 'unused archives removed');
    } catch (error) {
      log.warn({ err: error }, 'searching unused archives failed');
    }
  }

  /** Looks again in the same commit: an upload may have stored the version since the parts were listed. */
  async #removeUnused(key: VersionKey): Promise<boolean> {
    const { store } = this.#options;
    const underWay = this.#underWay;
    const id = nameOf(key);
    for (;;) {
      const state = await store.write((tx) => {
        if (underWay.has(id) || tx.resource({ kind: 'version', id })) return 'used';
        return removeSome(tx, key) ? 'gone' : 'left';
      }, ENDING);
      if (state !== 'left') return state === 'gone';
    }
  }
}

/** @returns whether no part is left */
function removeSome(tx: Transaction, key: VersionKey): boolean {
  const parts = tx.versionParts(key);
  tx.removeVersionParts(key, DELETED_AT_ONCE);
  return parts <= DELETED_AT_ONCE;
}

/** ID of the version's resource. */
export function nameOf({ endpointId, version }: VersionKey): string {
  return `${endpointId}/${version}`;
}

/**
 * Checks an uploaded archive; its reader is loaded with the first upload.
 * @throws ProblemError `invalid` that names the path or the limit
 */
export async function inspectUpload(archive: Uint8Array, entry: string): Promise<ArchiveSummary> {
  const [{ inspectInThread }, { ArchiveError }] = await Promise.all([
    import('../../archive/inspect-in-thread.ts'),
    import('../../archive/archive-paths.ts'),
  ]);
  try {
    return await inspectInThread(archive, entry);
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error;
    throw new ProblemError('invalid', `The body is not a valid archive: ${error.message}`, {
      errors: [`body: ${error.message}`],
      cause: error,
    });
  }
}
