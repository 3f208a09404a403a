// The form of a key, and its record in the store: the hash instead of the key itself.
import { hash, randomBytes } from 'node:crypto';
import { createUuidV7 } from '../../base/id.ts';
import type { StoredKey } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { KeyHolder } from './known-keys.ts';

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
