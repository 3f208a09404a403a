// Loads undici on first use. Loading takes 100 ms of processor time, and a platform without
// webhooks and load-balancing endpoints never needs it.
import { createRequire } from 'node:module';
import { skipUnaskedContinue } from './unasked-continue.ts';

const load = createRequire(import.meta.url);

export function loadUndici(): typeof import('undici') {
  skipUnaskedContinue();
  return load('undici');
}
