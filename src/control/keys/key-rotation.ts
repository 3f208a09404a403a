// Replaces a key by a new one with the same rights, in one transaction.
import type { StoredKey, Transaction } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { KeyHolder } from './known-keys.ts';
import { describeHolder, identify, requireKey } from './stored-key.ts';

/** Called within the commit, with all keys of the user. */
export type KeysCheck = (own: readonly KeyHolder[]) => void;

export interface Rotation {
  id: string;
  userId: string;
  /** The new key. */
  key: string;
  now: number;
  graceMs: number;
  check: KeysCheck;
}

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
