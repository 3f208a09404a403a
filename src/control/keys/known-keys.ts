// All keys in memory, found by hash, by ID and by user.
import { RESOURCES } from '../../wire/routes/routes.ts';
import { NameIndex } from '../name-index.ts';
import type { HeldGrant } from './key-grant.ts';

export interface KeyHolder extends HeldGrant {
  name: string;
  /** The pod of the worker that uses the key. */
  podId: string | null;
}

/** A key without its secret. */
export interface HeldKey {
  holder: KeyHolder;
  /** Unix ms. */
  createdAt: number;
  /** Position in lists. */
  position: number;
}

export interface KnownKey extends HeldKey {
  /** Base64url. */
  hash: string;
  digest: Buffer;
}

export class KnownKeys {
  /** By hash; the oldest first. */
  readonly #byHash = new Map<string, KnownKey>();
  readonly #byId = new Map<string, KnownKey>();
  readonly #names = new NameIndex(RESOURCES.keys.plural);
  /** By user, then by hash; the oldest first. */
  readonly #byUser = new Map<string, Map<string, KnownKey>>();

  /** The oldest first. */
  all(): KnownKey[] {
    return [...this.#byHash.values()];
  }

  /** The oldest first. */
  ofUser(userId: string): KnownKey[] {
    return [...(this.#byUser.get(userId)?.values() ?? [])];
  }

  byHash(hash: string): KnownKey | undefined {
    return this.#byHash.get(hash);
  }

  byId(keyId: string): KnownKey | undefined {
    return this.#byId.get(keyId);
  }

  /**
   * The ID of the user's only key with this name that has not expired; `name` without one. @throws
   * ProblemError `conflict` if several have it
   */
  resolve(userId: string, name: string, now: number): string {
    const good = this.#names.list(userId, name).filter((id) => {
      const expiresAt = this.#byId.get(id)?.holder.expiresAt ?? null;
      return expiresAt === null || expiresAt > now;
    });
    return this.#names.choose(name, good);
  }

  /** Adds it, or replaces the one with this hash, which keeps its place. */
  put(key: KnownKey): void {
    const { hash, holder } = key;
    const before = this.#byHash.get(hash);
    if (before && before.holder.userId !== holder.userId) this.#removeOfUser(before);
    this.#byHash.set(hash, key);
    this.#byId.set(holder.keyId, key);
    this.#names.put(holder.keyId, holder);
    const own = this.#byUser.get(holder.userId) ?? new Map<string, KnownKey>();
    this.#byUser.set(holder.userId, own.set(hash, key));
  }

  remove(hash: string): KnownKey | undefined {
    const known = this.#byHash.get(hash);
    if (!known) return undefined;
    this.#byHash.delete(hash);
    this.#byId.delete(known.holder.keyId);
    this.#names.remove(known.holder.keyId);
    this.#removeOfUser(known);
    return known;
  }

  #removeOfUser({ hash, holder: { userId } }: KnownKey): void {
    const own = this.#byUser.get(userId);
    own?.delete(hash);
    if (own?.size === 0) this.#byUser.delete(userId);
  }
}
