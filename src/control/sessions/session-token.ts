// The token of a browser's session: random, and stored only as a hash.
import { hash, randomBytes } from 'node:crypto';

const TOKEN_BYTES = 32;
export const TOKEN_FORM = /^ms_[A-Za-z0-9_-]{43}$/;

export function generateToken(): string {
  return `ms_${randomBytes(TOKEN_BYTES).toString('base64url')}`;
}

/** Also the ID of the session. */
export function hashToken(token: string): string {
  return hash('sha256', token, 'base64url');
}
