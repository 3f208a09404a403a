// Validation failures as the sentences of a problem's `errors`: each names the path and the fault.
import type { z } from 'zod';

/** One string an issue; `root` stands for the path of the value itself. */
export function describeIssues(error: z.ZodError, root = 'body'): string[] {
  return error.issues.flatMap((issue) =>
    issue.code === 'unrecognized_keys'
      ? issue.keys.map((key) => `${formatPath([...issue.path, key], root)}: is not known`)
      : [`${formatPath(issue.path, root)}: ${issue.message}`],
  );
}

function formatPath(path: readonly PropertyKey[], root: string): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else text += text === '' ? String(part) : `.${String(part)}`;
  }
  return text === '' ? root : text;
}
