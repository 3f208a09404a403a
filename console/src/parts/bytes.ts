// Sizes for people.

const UNITS = ['bytes', 'kB', 'MB', 'GB', 'TB'];

/** `312 bytes`, `18.4 kB`, `20 MB`: decimal units. */
export function sayBytes(bytes: number): string {
  let unit = 0;
  let value = bytes;
  while (value >= 1_000 && unit < UNITS.length - 1) {
    value /= 1_000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  const bounds = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return `${value.toLocaleString(undefined, bounds)} ${UNITS[unit]}`;
}
