// API keys: makes them, keeps their hashes, and tells who holds the one that is shown.
import { hash, randomBytes, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import { createUuidV7 } from '../base/id.ts';
import type { Store, StoredKey } from '../store/store.ts';
import { describeIssues } from '../wire/issues.ts';
import { ProblemError } from '../wire/problem.ts';
import { scopeGrant } from './scopes.ts';

/** 256 random bits behind a prefix that secret scanners can look for. */
const KEY_BYTES = 32;
const KEY_FORM = /^mr_[A-Za-z0-9_-]{43}$/;
/** Who the first keys, and those given by file, belong to. */
const OWNER = 'owner';

export interface KeyHolder {
  keyId: string;
  name: string;
  userId: string;
  scopes: ReadonlySet<string>;
  /** Unix ms. */
  expiresAt: number | null;
}

export interface KeyGrant {
  /** For people. */
  name: string;
  /** See scopes.ts. */
  scopes: string[];
  /** Default: the platform's owner. */
  userId?: string;
  /** Unix ms. Default: never. */
  expiresAt?: number;
}

export interface IssuedKey {
  /** The only time that it is shown. */
  key: string;
  holder: KeyHolder;
}

export interface FirstKeys {
  admin: string;
  worker: string;
}

export interface KeysOptions {
  store: Store;
  clock: Clock;
}

interface Known {
  digest: Buffer;
  holder: KeyHolder;
}

const keyGrant = z.strictObject({
  name: z.string().min(1).max(200),
  scopes: z.array(scopeGrant).min(1),
  userId: z.string().min(1).max(200).exactOptional(),
  expiresAt: z.int().min(0).exactOptional(),
});

/** All keys are in memory, so that a call is let in without a look at the store. */
export class Keys {
  readonly #options: KeysOptions;
  /** By hash, base64url. */
  readonly #known = new Map<string, Known>();

  private constructor(options: KeysOptions) {
    this.#options = options;
  }

  static async open(options: KeysOptions): Promise<Keys> {
    const keys = new Keys(options);
    for (const stored of await options.store.read((tx) => tx.keys())) keys.#learn(stored);
    return keys;
  }

  /** Undefined for a key that is not known, has expired or is not one at all. */
  authenticate(presentedKey: string): KeyHolder | undefined {
    if (!KEY_FORM.test(presentedKey)) return undefined;
    const hashText = hashKey(presentedKey);
    const known = this.#known.get(hashText);
    // Looking up a hash tells nothing of the key; the comparison that decides takes the same time.
    if (!known || !timingSafeEqual(Buffer.from(hashText), known.digest)) return undefined;
    const { expiresAt } = known.holder;
    if (expiresAt !== null && expiresAt <= this.#options.clock.now()) return undefined;
    return known.holder;
  }

  /** @throws ProblemError `invalid` */
  async issue(grant: KeyGrant): Promise<IssuedKey> {
    const key = generateKey();
    return { key, holder: await this.importKey(key, grant) };
  }

  /**
   * Takes up a key that was made elsewhere, in the form that `generateKey` gives; one that is known
   * gets the new grant. @throws ProblemError `invalid`
   */
  async importKey(plainKey: string, grant: KeyGrant): Promise<KeyHolder> {
    if (!KEY_FORM.test(plainKey)) {
      throw new ProblemError('invalid', 'a key is "mr_" and 43 characters of base64url');
    }
    const stored = this.#toStored(plainKey, grant);
    const kept = await this.#options.store.write(function* (tx) {
      const known = yield* tx.keyByHash(stored.hash);
      const key = known ? { ...stored, id: known.id, createdAt: known.createdAt } : stored;
      yield* tx.putKey(key);
      return key;
    });
    return this.#learn(kept);
  }

  /** Makes an admin key and a worker key if there are no keys at all; undefined if there are. */
  async ensureFirstKeys(): Promise<FirstKeys | undefined> {
    const first = { admin: generateKey(), worker: generateKey() };
    const stored = [
      this.#toStored(first.admin, { name: 'first admin key', scopes: ['admin'] }),
      this.#toStored(first.worker, { name: 'first worker key', scopes: ['worker'] }),
    ];
    const isFirstStart = await this.#options.store.write(function* (tx) {
      if ((yield* tx.keys()).length > 0) return false;
      for (const key of stored) yield* tx.putKey(key);
      return true;
    });
    if (!isFirstStart) return undefined;
    for (const key of stored) this.#learn(key);
    return first;
  }

  #toStored(plainKey: string, grant: KeyGrant): StoredKey {
    const checked = keyGrant.safeParse(grant);
    if (!checked.success) {
      const errors = describeIssues(checked.error, 'key');
      throw new ProblemError('invalid', errors.join('; '), { errors });
    }
    const { name, scopes, userId = OWNER, expiresAt = null } = checked.data;
    return {
      id: `key_${createUuidV7(this.#options.clock.now())}`,
      hash: hashKey(plainKey),
      name,
      userId,
      scopes,
      createdAt: this.#options.clock.now(),
      expiresAt,
    };
  }

  #learn({ expiresAt, hash: hashText, id, name, scopes, userId }: StoredKey): KeyHolder {
    const holder = { keyId: id, name, userId, scopes: new Set(scopes), expiresAt };
    this.#known.set(hashText, { digest: Buffer.from(hashText), holder });
    return holder;
  }
}

export function generateKey(): string {
  return `mr_${randomBytes(KEY_BYTES).toString('base64url')}`;
}

function hashKey(plainKey: string): string {
  return hash('sha256', plainKey, 'base64url');
}
