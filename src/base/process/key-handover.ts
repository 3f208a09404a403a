// How a program gets keys on its standard input: its environment, in /proc/PID/environ, is open to all processes of its user.

/** Variables of keys that no process but the worker needs. */
export const KEY_VARIABLES = ['MILLRACE_KEY', 'RUNPOD_AI_API_KEY'] as const;

/** Set for a process that must read its keys, `{ "MILLRACE_KEY": "…" }`, from standard input. */
export const HANDOVER_VARIABLE = 'MILLRACE_KEYS_ON_STDIN';
