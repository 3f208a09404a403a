// Validation failures as the sentences of a problem's `errors`: each names the path and the fault.
import type { z } from 'zod';

/** Who sent a body of nothing but mistakes does not need to be told each of them. */
const MAX_DESCRIBED = 100;

/**
 * One string an issue, and one that counts the rest if there are more than 100; `root` stands for the
 * path of the value itself.
 */
export function describeIssues(error: z.ZodError, root = 'body'): string[] {
  const all = error.issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((key) => ({ path: [...issue.path, key], message: 'is not known' }))
      : [issue],
  );
  const described = all
    .slice(0, MAX_DESCRIBED)
    .map(({ message, path }) => `${formatPath(path, root)}: ${message}`);
  const left = all.length - described.length;
  return left > 0 ? [...described, `${root}: ${left} more like these`] : described;
}

function formatPath(path: readonly PropertyKey[], root: string): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else text += text === '' ? String(part) : `.${String(part)}`;
  }
  return text === '' ? root : text;
}
