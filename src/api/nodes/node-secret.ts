// The secret that nodes show each other. The first one is sent and all are accepted, so that it can be rotated.
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { NODE_HEADERS } from './forwarded.ts';

/** Compares in constant time, whatever the lengths. */
export function hasNodeSecret({ headers }: IncomingMessage, secrets: readonly string[]): boolean {
  const shown = headers[NODE_HEADERS.secret];
  if (typeof shown !== 'string' || shown === '') return false;
  const digest = hash(shown);
  let isKnown = false;
  for (const secret of secrets) {
    const isEqual = secret !== '' && timingSafeEqual(hash(secret), digest);
    isKnown ||= isEqual;
  }
  return isKnown;
}

/** @throws Error without a secret */
export function firstSecret([secret]: readonly string[]): string {
  if (secret === undefined || secret === '') throw new Error('nodes need a secret');
  return secret;
}

function hash(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
