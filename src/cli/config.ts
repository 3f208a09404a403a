// Reads the process's environment; no other module does. It hides the platform's keys from handlers
// and child processes: a worker process receives its keys on standard input.
import { readFileSync } from 'node:fs';
import { HANDOVER_VARIABLE, KEY_VARIABLES } from '../base/api-key.ts';

type HandedKeys = Partial<Record<(typeof KEY_VARIABLES)[number], string>>;

const withheld = new Map<string, string>();

/** Undefined if the variable is not set or empty. */
export function readVariable(name: string): string | undefined {
  return withheld.get(name) || process.env[name] || undefined;
}

/** Sets the variable for this process and for later child processes and threads. */
export function setVariable(name: string, value: string): void {
  process.env[name] = value;
}

/**
 * Returns the environment for a child process: this process's with `changes` (undefined removes a
 * variable).
 */
export function inheritEnvironment(
  changes: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> {
  return { ...process.env, ...changes };
}

/** Returns the environment for a child process that receives its keys on standard input. */
export function inheritWithoutKeys(
  changes: Readonly<Record<string, string | undefined>>,
): Record<string, string | undefined> {
  const none = Object.fromEntries(KEY_VARIABLES.map((name) => [name, undefined]));
  return inheritEnvironment({ ...changes, ...none, [HANDOVER_VARIABLE]: '1' });
}

/**
 * Removes the keys from this process's environment before a handler is loaded; `readVariable` still
 * returns them. /proc/PID/environ still shows them if the process was started with them.
 */
export function withholdKeys(): void {
  const handed = readHandedKeys();
  for (const name of KEY_VARIABLES) {
    const key = handed[name] ?? process.env[name];
    delete process.env[name];
    if (key) withheld.set(name, key);
  }
}

/** Returns the keys for a child process. */
export function listKeys(): HandedKeys {
  return Object.fromEntries(withheld);
}

function readHandedKeys(): HandedKeys {
  if (process.env[HANDOVER_VARIABLE] === undefined) return {};
  delete process.env[HANDOVER_VARIABLE];
  // The supervisor or the process engine wrote this JSON.
  return JSON.parse(readFileSync(0, 'utf8')) as HandedKeys;
}
