// Keeps the fuzzer from harming its machine: whatever a body contains, only programs on a short
// list start, and few of them.

import { fixture } from '../processes.ts';
import type { Dice } from './dice.ts';

export const HARMLESS_ARGS: readonly [string, ...string[]] = [
  'sleep 60',
  'sleep 60',
  'true',
  'false',
  "sh -c 'echo a word; exec sleep 60'",
  'no-such-program-of-the-fuzzer',
  '"sleep" "60',
  '\\',
];

const HANDLERS: readonly [string, ...string[]] = [
  fixture('tagged.ts'),
  '/no/such/handler.ts',
  'handler.ts',
];

const MAX_WORKERS = 1_000;

export interface Allowance {
  pods: number;
  endpoints: number;
}

/** Makes a changed body harmless: replaces what it would start by a known program. */
export function tame(
  route: string,
  body: unknown,
  { allowance, dice }: { allowance: Allowance; dice: Dice },
): unknown {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return body;
  // Copies a member with the name __proto__ as a member.
  const tamed: Record<string, unknown> = Object.fromEntries(Object.entries(body));
  if (typeof tamed['args'] === 'string') tamed['args'] = dice.pick(HARMLESS_ARGS);
  if (typeof tamed['handler'] === 'string' && tamed['handler'].length < 4_096) {
    tamed['handler'] = dice.pick(HANDLERS);
  }
  if (isCount(tamed['workersMin'])) tamed['workersMin'] = 0;
  if (isCount(tamed['workersMax'])) tamed['workersMax'] = 1;
  if (isCount(tamed['maxQueued'])) tamed['maxQueued'] = MAX_WORKERS;
  if (route === 'POST /v1/endpoints') {
    tamed['workersMax'] ??= 1;
    if (allowance.endpoints <= 0) tamed['templateId'] = 'tpl_none';
  }
  if (/ \/runpod\/v2\/serverless/.test(route)) {
    // Other numbers would start as many workers.
    if (typeof tamed['workers'] === 'object') tamed['workers'] = { min: 0, max: 1 };
    if (route.startsWith('POST') && allowance.endpoints <= 0) tamed['templateId'] = 'tpl_none';
  }
  if (/^POST (\/runpod)?\/v2\/pods$/.test(route) && allowance.pods <= 0)
    tamed['cpu'] = { id: 'none' };
  return tamed;
}

function isCount(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && value > 0 && value <= MAX_WORKERS;
}
