// All keys in memory, found by hash, by ID and by user; the form of a key, and its record in the store: the hash
// instead of the key itself.
import { hash, randomBytes } from 'node:crypto';
import { createUuidV7 } from '../../base/id.ts';
import type { StoredKey, Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import { NameIndex } from '../user-resources.ts';
import type { HeldGrant } from './rights.ts';

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

/** 256 random bits after a prefix that secret scanners recognise. */
const KEY_BYTES = 32;
export const KEY_FORM = /^mr_[A-Za-z0-9_-]{43}$/;

export function generateKey(): string {
  return `mr_${randomBytes(KEY_BYTES).toString('base64url')}`;
}

/** @throws ProblemError `not_found` */
export function requireKey(own: readonly StoredKey[], id: string): StoredKey {
  const found = own.find((key) => key.id === id);
  if (found) return found;
  throw keyNotFound(id);
}

export function keyNotFound(id: string): ProblemError {
  return new ProblemError('not_found', `key ${id} not found`);
}

export function identify(key: string, now: number): Pick<StoredKey, 'id' | 'hash' | 'createdAt'> {
  return { id: `key_${createUuidV7(now)}`, hash: hashKey(key), createdAt: now };
}

export function describeHolder({
  expiresAt,
  id,
  name,
  podId,
  scopes,
  userId,
}: StoredKey): KeyHolder {
  return { keyId: id, name, userId, scopes: new Set(scopes), expiresAt, podId };
}

export function hashKey(plainKey: string): string {
  return hash('sha256', plainKey, 'base64url');
}

/** Called within the commit, with all keys of the user. */
export type KeysCheck = (own: readonly KeyHolder[]) => void;

interface Rotation {
  id: string;
  userId: string;
  /** The new key. */
  key: string;
  now: number;
  graceMs: number;
  check: KeysCheck;
}

/** Replaces a key by a new one with the same rights, in one transaction. */
export function replaceKey(
  tx: Transaction,
  { check, graceMs, id, key, now, userId }: Rotation,
): { next: StoredKey; old: StoredKey } {
  const own = tx.keysOfUser(userId);
  check(own.map(describeHolder));
  const found = requireKey(own, id);
  const { expiresAt } = found;
  if (expiresAt !== null && expiresAt <= now) {
    throw new ProblemError('conflict', `key ${id} has expired`);
  }
  const next = { ...found, ...identify(key, now) };
  const old = {
    ...found,
    expiresAt: Math.min(expiresAt ?? Number.MAX_SAFE_INTEGER, now + graceMs),
  };
  tx.putKey(next);
  graceMs > 0 ? tx.putKey(old) : tx.removeKey(id);
  return { next, old };
}
