// Lists of keys in statements. They have one of two lengths, so that few statements are prepared.

/** Most jobs of a statement. */
const LISTED_JOBS = 32;

/** Splits the keys into lists of `LISTED_JOBS`. The last list repeats its last key, unless it has only one. */
export function splitKeys(keys: readonly string[]): string[][] {
  const lists: string[][] = [];
  for (let at = 0; at < keys.length; at += LISTED_JOBS) {
    const list = keys.slice(at, at + LISTED_JOBS);
    const last = list.at(-1);
    if (last !== undefined && list.length > 1) {
      while (list.length < LISTED_JOBS) list.push(last);
    }
    lists.push(list);
  }
  return lists;
}

const MANY = `(${Array.from({ length: LISTED_JOBS }, () => '?').join(', ')})`;

/** The placeholders of a list of this length, which `splitKeys` returned. */
export function writeList(length: number): string {
  return length === 1 ? '(?)' : MANY;
}
