// Finds the new part of a log of which only the end can be read. Pure.

interface LogGrowth {
  added: string;
  /** The new end does not continue the old one: lines were lost, or the log is another one. */
  isBroken: boolean;
}

/** `maxBytes`: how much of the end was asked for. A line that was cut at the start is left out. */
export function dropCutLine(end: string, maxBytes: number): string {
  return Buffer.byteLength(end) < maxBytes ? end : end.slice(end.indexOf('\n') + 1);
}

export function findGrowth(before: string, after: string): LogGrowth {
  if (after.startsWith(before)) return { added: after.slice(before.length), isBroken: false };
  const shared = measureOverlap(before, after);
  return { added: after.slice(shared), isBroken: shared === 0 };
}

/** Length of the longest end of `before` that is a start of `after`, by the prefix function of Knuth, Morris and Pratt. */
function measureOverlap(before: string, after: string): number {
  const borders = new Uint32Array(after.length);
  const extend = (matched: number, next: string | undefined): number => {
    let length = matched;
    while (length > 0 && after[length] !== next) length = borders[length - 1] ?? 0;
    return after[length] === next ? length + 1 : length;
  };
  for (let at = 1; at < after.length; at++) borders[at] = extend(borders[at - 1] ?? 0, after[at]);
  let matched = 0;
  // Compare code units, like the bounds.
  for (let at = 0; at < before.length; at++) matched = extend(matched, before[at]);
  return matched;
}
