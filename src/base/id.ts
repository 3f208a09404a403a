// Identifiers that sort by their time.
import { randomUUID } from 'node:crypto';

/**
 * A UUIDv7 (RFC 9562, 5.7) of the given Unix ms. Its random bits are those of a version 4 UUID, which
 * has the variant in the same place and which Node makes from entropy it keeps ready.
 */
export function createUuidV7(now: number): string {
  const time = now.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
}
