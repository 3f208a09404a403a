// Creates IDs that sort by the time of their creation.
import { hash, randomUUID } from 'node:crypto';

/**
 * Returns a UUIDv7 (RFC 9562, 5.7) for the given Unix ms. The random bits come from a version 4
 * UUID: it has the variant in the same place, and Node creates it from cached entropy.
 */
export function createUuidV7(now: number): string {
  const time = now.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}

/**
 * Returns a UUIDv7 of the same time as the given one, always the same for an index. Nobody can guess it
 * without `id`.
 */
export function deriveUuidV7(id: string, index: number): string {
  return `${id.slice(0, 14)}${digest(`${id} ${index}`)}`;
}

/** Returns a UUIDv7 for the given Unix ms, always the same for a name. */
export function nameUuidV7(now: number, name: string): string {
  return `${createUuidV7(now).slice(0, 14)}${digest(name)}`;
}

/** The version, the variant and the random bits, which follow from the text. */
function digest(text: string): string {
  const digits = hash('sha256', text);
  const random = `7${digits.slice(0, 3)}-${VARIANTS[Number.parseInt(digits.charAt(3), 16) & 3]}`;
  return `${random}${digits.slice(4, 7)}-${digits.slice(7, 19)}`;
}

const VARIANTS = '89ab';
