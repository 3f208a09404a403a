// Normalizes and compares PCI bus IDs, which are written differently in different places.

/**
 * `0000:01:00.0` and `00000000:01:00.0` are the same card: lower case, domain with eight digits.
 */
export function normalizeBusId(busId: string): string {
  const [, domain = '0', rest] =
    /^(?:([0-9a-f]+):)?([0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?)$/i.exec(busId.trim()) ?? [];
  if (rest === undefined) return busId.trim().toLowerCase();
  return `${domain.padStart(8, '0')}:${rest}`.toLowerCase();
}

/** For sorting normalized ids. */
export function compareBusIds(one: string, other: string): number {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}
