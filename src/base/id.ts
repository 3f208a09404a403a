// Creates IDs that sort by the time of their creation.
import { randomUUID } from 'node:crypto';

/**
 * Returns a UUIDv7 (RFC 9562, 5.7) for the given Unix ms. The random bits come from a version 4
 * UUID: it has the variant in the same place, and Node creates it from cached entropy.
 */
export function createUuidV7(now: number): string {
  if (now !== last.now) last = { now, text: encodeTime(now) };
  return last.text + randomUUID().slice(15);
}

/** IDs are often made several times a millisecond, and a number becomes digits slowly. */
let last = { now: 0, text: encodeTime(0) };

function encodeTime(now: number): string {
  const time = now.toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7`;
}
