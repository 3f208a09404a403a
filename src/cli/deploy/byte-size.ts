// Formats a number of bytes for people.

const UNITS = ['bytes', 'KB', 'MB'] as const;
const STEP = 1_024;

/** `512 bytes`, `18.4 KB`, `2.0 MB`. */
export function formatSize(bytes: number): string {
  const index = UNITS.findIndex((_, at) => bytes < STEP ** (at + 1) || at === UNITS.length - 1);
  if (bytes === 1) return '1 byte';
  const value = bytes / STEP ** index;
  return `${index === 0 ? value : value.toFixed(1)} ${UNITS[index]}`;
}
