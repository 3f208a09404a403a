// Manages API keys: creates them, stores their hashes, authenticates them, and tells those who serve a key for long when it
// becomes invalid. user-keys.ts decides what users may do with their keys.
import { timingSafeEqual } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../base/clock.ts';
import {
  ENDING,
  OWNER,
  type Store,
  type StoredKey,
  type Transaction,
  type WriteOptions,
} from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import { type NamedRecords, Positions } from '../user-resources.ts';
import {
  describeHolder,
  generateKey,
  type HeldKey,
  hashKey,
  identify,
  KEY_FORM,
  type KeyHolder,
  type KeysCheck,
  type KnownKey,
  KnownKeys,
  keyNotFound,
  replaceKey,
  requireKey,
} from './known-keys.ts';
import { checkGrant, type KeyGrant } from './rights.ts';

export type { HeldKey, KeyHolder, KeysCheck } from './known-keys.ts';
export type { KeyGrant } from './rights.ts';

/** How long an expired key is listed, 7 days, and at most how many per user. */
const EXPIRED_KEPT_MS = 604_800_000;
const EXPIRED_KEPT = 200;

interface IssuedKey {
  /** The only time that the key is shown. */
  key: string;
  holder: KeyHolder;
}

export interface FirstKeys {
  admin: string;
  worker: string;
}

/** Scopes of a key for the workers of these endpoints; of all endpoints if none is named. */
export function scopesOfWorkers(endpointIds: readonly string[]): string[] {
  return endpointIds.length === 0 ? ['worker'] : endpointIds.map((id) => `worker:${id}`);
}

export interface KeysOptions {
  store: Store;
  clock: Clock;
}

/** All keys are in memory, so that authentication does not read the store. */
export class Keys implements NamedRecords {
  readonly #options: KeysOptions;
  readonly #positions = new Positions(0);
  readonly #known = new KnownKeys();
  readonly #listeners = new Set<(keyId: string) => void>();

  private constructor(options: KeysOptions) {
    this.#options = options;
  }

  static async open(options: KeysOptions): Promise<Keys> {
    const keys = new Keys(options);
    await keys.reload();
    return keys;
  }

  /** Reads them again: another process may have changed them. Listeners learn of each change. */
  async reload(): Promise<void> {
    const all = await this.#options.store.read((tx) => tx.keys());
    const hashes = new Set(all.map((stored) => stored.hash));
    for (const { hash } of this.#known.all()) if (!hashes.has(hash)) this.#forget(hash);
    for (const stored of all) {
      const known = this.#known.byHash(stored.hash)?.holder;
      if (!isDeepStrictEqual(known, describeHolder(stored))) this.#learn(stored);
    }
  }

  /** Undefined for an unknown, expired or malformed key. */
  authenticate(presentedKey: string): KeyHolder | undefined {
    if (!KEY_FORM.test(presentedKey)) return undefined;
    const hashText = hashKey(presentedKey);
    const known = this.#known.byHash(hashText);
    // The lookup by hash reveals nothing about the key; the deciding comparison takes constant
    // time.
    if (!known || !timingSafeEqual(Buffer.from(hashText), known.digest)) return undefined;
    const { expiresAt } = known.holder;
    if (expiresAt !== null && expiresAt <= this.#options.clock.now()) return undefined;
    return known.holder;
  }

  /** The oldest first, expired ones included. */
  all(): HeldKey[] {
    return this.#known.all();
  }

  /** The oldest first, expired ones included. */
  ofUser(userId: string): HeldKey[] {
    return this.#known.ofUser(userId);
  }

  find(keyId: string): HeldKey | undefined {
    return this.#known.byId(keyId);
  }

  /** Keys that have expired have no name: only their IDs find them. */
  resolve(userId: string, idOrName: string): string {
    return this.#known.resolve(userId, idOrName, this.#options.clock.now());
  }

  /** Unix ms; null: never; undefined for an unknown key. */
  endOf(keyId: string): number | null | undefined {
    return this.find(keyId)?.holder.expiresAt;
  }

  /**
   * Calls the listener with each created, changed or removed key. @returns the function that stops
   * it
   */
  onChange(listener: (keyId: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * `check` sees all keys of the user within the commit, and may throw. @throws ProblemError
   * `invalid`
   */
  async issue(grant: KeyGrant, check?: KeysCheck): Promise<IssuedKey> {
    const key = generateKey();
    const stored = this.#toStored(key, grant);
    const { userId } = stored;
    await this.#change(userId, (tx) => {
      if (check) check(tx.keysOfUser(userId).map(describeHolder));
      tx.putKey(stored);
    });
    return { key, holder: this.#learn(stored) };
  }

  /**
   * Adds a key that was generated elsewhere by `generateKey`; a known key gets the new grant.
   * @throws ProblemError `invalid`
   */
  async importKey(plainKey: string, grant: KeyGrant): Promise<KeyHolder> {
    if (!KEY_FORM.test(plainKey)) {
      throw new ProblemError('invalid', 'a key is "mr_" and 43 characters of base64url');
    }
    const stored = this.#toStored(plainKey, grant);
    const kept = await this.#options.store.write((tx) => {
      const known = tx.keyByHash(stored.hash);
      const key = known ? { ...stored, id: known.id, createdAt: known.createdAt } : stored;
      tx.putKey(key);
      return key;
    }, ENDING);
    return this.#learn(kept);
  }

  /**
   * Creates a key with the same rights; the old one stays valid for `graceMs`, but no longer than
   * before. `check` sees all keys of the user within the commit, and may throw.
   * @throws ProblemError `not_found`, `conflict` for an expired key
   */
  async rotate(id: string, graceMs: number, check: KeysCheck = () => {}): Promise<IssuedKey> {
    const key = generateKey();
    const now = this.#options.clock.now();
    const userId = this.#ownerOf(id);
    const { next, old } = await this.#change(
      userId,
      (tx) => replaceKey(tx, { id, userId, key, now, graceMs, check }),
      ENDING,
    );
    const holder = this.#learn(next);
    if (graceMs > 0) this.#learn(old);
    else this.#forget(old.hash);
    return { key, holder };
  }

  /**
   * The key is rejected from then on. `check` sees all keys of its user within the commit, and may
   * throw.
   * @throws ProblemError `not_found`
   */
  async remove(id: string, check: KeysCheck = () => {}): Promise<void> {
    const userId = this.#ownerOf(id);
    const remove = (tx: Transaction) => {
      const own = tx.keysOfUser(userId);
      check(own.map(describeHolder));
      tx.removeKey(id);
      return requireKey(own, id);
    };
    const removed = await this.#change(userId, remove, ENDING);
    this.#forget(removed.hash);
  }

  /**
   * Creates an admin key and a worker key if there are no keys at all; otherwise returns undefined.
   */
  async ensureFirstKeys(endpointIds: readonly string[] = []): Promise<FirstKeys | undefined> {
    const first = { admin: generateKey(), worker: generateKey() };
    const stored = [
      this.#toStored(first.admin, { name: 'first admin key', scopes: ['admin'] }),
      this.#toStored(first.worker, {
        name: 'first worker key',
        scopes: scopesOfWorkers(endpointIds),
      }),
    ];
    const isFirstStart = await this.#options.store.write((tx) => {
      if (tx.keys().length > 0) return false;
      for (const key of stored) tx.putKey(key);
      return true;
    }, ENDING);
    if (!isFirstStart) return undefined;
    for (const key of stored) this.#learn(key);
    return first;
  }

  /** The same commit removes the user's long expired keys, which nothing else would remove. */
  async #change<T>(
    userId: string,
    change: (tx: Transaction) => T,
    options: WriteOptions = {},
  ): Promise<T> {
    const old = this.#listForgettable(userId);
    const changed = await this.#options.store.write((tx) => {
      const result = change(tx);
      for (const { holder } of old) tx.removeKey(holder.keyId);
      return result;
    }, options);
    for (const known of old) this.#forget(known.hash);
    return changed;
  }

  #listForgettable(userId: string): KnownKey[] {
    const now = this.#options.clock.now();
    const own = this.#known.ofUser(userId);
    let expired = 0;
    return own.reverse().filter(({ holder: { expiresAt } }) => {
      if (expiresAt === null || expiresAt > now) return false;
      expired += 1;
      return expired > EXPIRED_KEPT || expiresAt < now - EXPIRED_KEPT_MS;
    });
  }

  /** @throws ProblemError `not_found` */
  #ownerOf(id: string): string {
    const known = this.find(id);
    if (known) return known.holder.userId;
    throw keyNotFound(id);
  }

  #toStored(plainKey: string, grant: KeyGrant): StoredKey {
    const { name, scopes, userId = OWNER, expiresAt = null, podId = null } = checkGrant(grant);
    const now = this.#options.clock.now();
    return { ...identify(plainKey, now), name, userId, scopes, expiresAt, podId };
  }

  #learn(stored: StoredKey): KeyHolder {
    const { createdAt, hash: hashText } = stored;
    const holder = describeHolder(stored);
    const position = this.#known.byHash(hashText)?.position ?? this.#positions.next(createdAt);
    const digest = Buffer.from(hashText);
    this.#known.put({ hash: hashText, digest, holder, createdAt, position });
    this.#notify(holder.keyId);
    return holder;
  }

  #forget(hashText: string): void {
    const known = this.#known.remove(hashText);
    if (known) this.#notify(known.holder.keyId);
  }

  #notify(keyId: string): void {
    for (const listener of this.#listeners) listener(keyId);
  }
}

/** Longest timer, so that a changed clock matters only briefly. */
const MAX_TIMER_MS = 60_000;

interface Watcher {
  onEnd: () => void;
  cancelTimer: () => void;
}

export interface KeyWatchOptions {
  keys: Pick<Keys, 'endOf' | 'onChange'>;
  clock: Clock;
}

/** Notifies long-lived users of a key when the key becomes invalid: revoked, rotated or expired. */
export class KeyWatch {
  readonly #options: KeyWatchOptions;
  /** By key ID. */
  readonly #watchers = new Map<string, Set<Watcher>>();
  readonly #stop: () => void;

  constructor(options: KeyWatchOptions) {
    this.#options = options;
    this.#stop = options.keys.onChange((keyId) => this.#check(keyId));
  }

  close(): void {
    this.#stop();
    for (const watchers of this.#watchers.values()) for (const each of watchers) each.cancelTimer();
    this.#watchers.clear();
  }

  /** Calls `onEnd` once; at once if the key is invalid now. @returns the function that stops it */
  watch(keyId: string, onEnd: () => void): () => void {
    const watcher: Watcher = { onEnd, cancelTimer: () => {} };
    const watchers = this.#watchers.get(keyId) ?? new Set();
    this.#watchers.set(keyId, watchers.add(watcher));
    // Only the new one: a thousand workers may wait with one key.
    this.#update(keyId, watcher, this.#leftMs(keyId));
    return () => this.#forget(keyId, watcher);
  }

  #check(keyId: string): void {
    const watchers = [...(this.#watchers.get(keyId) ?? [])];
    if (watchers.length === 0) return;
    const leftMs = this.#leftMs(keyId);
    for (const watcher of watchers) this.#update(keyId, watcher, leftMs);
  }

  /** Time until the key becomes invalid; infinite for a key without an end. */
  #leftMs(keyId: string): number {
    const { clock, keys } = this.#options;
    const endsAt = keys.endOf(keyId);
    if (endsAt === undefined) return 0;
    return endsAt === null ? Number.POSITIVE_INFINITY : endsAt - clock.now();
  }

  #update(keyId: string, watcher: Watcher, leftMs: number): void {
    watcher.cancelTimer();
    if (leftMs <= 0) {
      this.#forget(keyId, watcher);
      watcher.onEnd();
    } else if (leftMs < Number.POSITIVE_INFINITY) {
      const waitMs = Math.min(leftMs, MAX_TIMER_MS);
      watcher.cancelTimer = this.#options.clock.after(waitMs, () => this.#check(keyId));
    }
  }

  #forget(keyId: string, watcher: Watcher): void {
    watcher.cancelTimer();
    const watchers = this.#watchers.get(keyId);
    watchers?.delete(watcher);
    if (watchers?.size === 0) this.#watchers.delete(keyId);
  }
}
