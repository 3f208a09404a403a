// Creates multi-byte texts of an exact size in bytes.

const UNIT = 'é€😀';
const UNIT_BYTES = 9;

/**
 * Returns a text of exactly this number of bytes in UTF-8: characters of 2, 3 and 4 bytes, and x
 * for the rest.
 */
export function makeText(bytes: number): string {
  return UNIT.repeat(Math.floor(bytes / UNIT_BYTES)) + 'x'.repeat(bytes % UNIT_BYTES);
}
