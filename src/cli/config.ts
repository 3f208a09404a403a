// The only reader of the process's environment.

/** Undefined where it is not set, or empty. */
export function readVariable(name: string): string | undefined {
  return process.env[name] || undefined;
}

/** The environment for a child process: this one's, with `changes` (undefined removes). */
export function inheritEnvironment(
  changes: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> {
  return { ...process.env, ...changes };
}
