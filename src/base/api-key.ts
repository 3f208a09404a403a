// API keys as people paste them and as programs get them. A pasted key has line ends, spaces or invisible characters
// around it; a key with another character inside cannot be sent in a header, so every request would fail. Also runs in
// browsers.

/** White space, zero-width characters and the byte order mark. */
const MARGIN = /^[\s\u200b-\u200f\u2060\ufeff]+|[\s\u200b-\u200f\u2060\ufeff]+$/g;
const FOREIGN = /[^\x21-\x7e]/u;

/** @throws TypeError that shows no key */
export function cleanKey(key: string): string {
  const clean = key.replaceAll(MARGIN, '');
  const foreign = FOREIGN.exec(clean);
  if (!foreign) return clean;
  const code = (foreign[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
  throw new TypeError(
    `character ${foreign.index + 1} of the key is U+${code}, which no key has; copy the key again`,
  );
}

// How a program gets keys on its standard input: its environment, in /proc/PID/environ, is open to all processes of its user.

/** Variables of keys that no process but the worker needs. */
export const KEY_VARIABLES = ['MILLRACE_KEY', 'RUNPOD_AI_API_KEY'] as const;

/** Set for a process that must read its keys, `{ "MILLRACE_KEY": "…" }`, from standard input. */
export const HANDOVER_VARIABLE = 'MILLRACE_KEYS_ON_STDIN';
