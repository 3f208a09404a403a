// Texts of a wanted size in bytes that are not one character a byte.

const UNIT = 'é€😀';
const UNIT_BYTES = 9;

/** A text of exactly so many bytes of UTF-8: characters of 2, 3 and 4 bytes, and x for what is left. */
export function makeText(bytes: number): string {
  return UNIT.repeat(Math.floor(bytes / UNIT_BYTES)) + 'x'.repeat(bytes % UNIT_BYTES);
}
