// Loads undici on first use. Loading takes 100 ms of processor time, and a platform without
// webhooks and load-balancing endpoints never needs it.
import { createRequire } from 'node:module';

const load = createRequire(import.meta.url);

export function loadUndici(): typeof import('undici') {
  return load('undici');
}
