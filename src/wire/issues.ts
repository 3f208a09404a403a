// Formats validation failures as the sentences of a problem's `errors`: each names the path and the
// fault.
import type { z } from 'zod';

/** A caller who sent only errors does not need all of them. */
export const MAX_DESCRIBED = 20;
/** Characters of a path that are shown. */
const MAX_PATH_LENGTH = 200;

/**
 * Returns one string for each of the first 20 errors, and one that counts the rest; `root` stands
 * for an empty path. `start`: path of the checked value.
 */
export function describeIssues(
  error: z.ZodError,
  root = 'body',
  start: readonly PropertyKey[] = [],
): string[] {
  const described: string[] = [];
  let count = 0;
  const add = (path: readonly PropertyKey[], message: string) => {
    count += 1;
    if (count <= MAX_DESCRIBED) {
      described.push(`${formatPath([...start, ...path], root)}: ${message}`);
    }
  };
  for (const issue of error.issues) {
    if (issue.code !== 'unrecognized_keys') add(issue.path, issue.message);
    else for (const key of issue.keys) add([...issue.path, key], 'is unknown');
  }
  const left = count - described.length;
  return left > 0 ? [...described, `${root}: ${left} more errors`] : described;
}

export function formatPath(path: readonly PropertyKey[], root = 'body'): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else text += text === '' ? String(part) : `.${String(part)}`;
  }
  if (text === '') return root;
  return text.length > MAX_PATH_LENGTH ? `${text.slice(0, MAX_PATH_LENGTH)}…` : text;
}
