// The only reader of the process's environment. It keeps the platform's keys out of what handlers and
// child processes see: a worker process is handed them on its standard input.
import { readFileSync } from 'node:fs';

const KEY_VARIABLES = ['MILLRACE_KEY', 'RUNPOD_AI_API_KEY'] as const;

/** Set for a process that is to read its keys, `{ "MILLRACE_KEY": "…" }`, from standard input. */
const HANDOVER_VARIABLE = 'MILLRACE_KEYS_ON_STDIN';

type Keys = Partial<Record<(typeof KEY_VARIABLES)[number], string>>;

const withheld = new Map<string, string>();

/** Undefined where it is not set, or empty. */
export function readVariable(name: string): string | undefined {
  return withheld.get(name) || process.env[name] || undefined;
}

/** What child processes and threads that start from now on inherit too. */
export function setVariable(name: string, value: string): void {
  process.env[name] = value;
}

/** The environment for a child process: this one's, with `changes` (undefined removes). */
export function inheritEnvironment(
  changes: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> {
  return { ...process.env, ...changes };
}

/** The environment for a child process that is handed its keys on standard input. */
export function inheritWithoutKeys(
  changes: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> {
  const none = Object.fromEntries(KEY_VARIABLES.map((name) => [name, undefined]));
  return inheritEnvironment({ ...changes, ...none, [HANDOVER_VARIABLE]: '1' });
}

/**
 * Takes the keys out of this process's environment, before a handler is loaded; `readVariable` still
 * knows them. /proc/PID/environ of a process that was started with them shows them all the same.
 */
export function withholdKeys(): void {
  const handed = readHandedKeys();
  for (const name of KEY_VARIABLES) {
    const key = handed[name] ?? process.env[name];
    delete process.env[name];
    if (key) withheld.set(name, key);
  }
}

/** The keys to hand to a child process. */
export function listKeys(): Keys {
  return Object.fromEntries(withheld);
}

function readHandedKeys(): Keys {
  if (process.env[HANDOVER_VARIABLE] === undefined) return {};
  delete process.env[HANDOVER_VARIABLE];
  // Our own supervisor wrote it.
  return JSON.parse(readFileSync(0, 'utf8')) as Keys;
}
