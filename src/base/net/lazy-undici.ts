// Loads undici when it is first needed. Loading takes 100 ms of processor time, and a platform that
// sends no webhook and balances no load never needs it.
import { createRequire } from 'node:module';

const load = createRequire(import.meta.url);

export function loadUndici(): typeof import('undici') {
  return load('undici');
}
