// How webhooks are signed: secrets of endpoints out of those of the platform, and the header.
import { createHmac, randomBytes } from 'node:crypto';
import { prefixSigned } from '../wire/webhook.ts';

const PLATFORM_PREFIX = 'mrw_';
const ENDPOINT_PREFIX = 'whs_';

/** 256 random bits. */
export function generatePlatformSecret(): string {
  return PLATFORM_PREFIX + randomBytes(32).toString('base64url');
}

export function isPlatformSecret(text: string): boolean {
  return /^mrw_[A-Za-z0-9_-]{43}$/.test(text);
}

/**
 * What the receivers of one endpoint are given. Out of it nobody finds that of another endpoint, so a
 * receiver can neither sign for others nor pass on to them what it was sent.
 */
export function deriveEndpointSecret(platformSecret: string, endpointId: string): string {
  const derived = createHmac('sha256', platformSecret).update(`webhook:${endpointId}`);
  return ENDPOINT_PREFIX + derived.digest('base64url');
}

/** The value of the header. `now` is Unix ms. */
export function signBody(body: Uint8Array, secrets: readonly string[], now: number): string {
  const seconds = Math.floor(now / 1_000);
  const signatures = secrets.map((secret) => {
    const signature = createHmac('sha256', secret).update(prefixSigned(seconds)).update(body);
    return `v1=${signature.digest('hex')}`;
  });
  return [`t=${seconds}`, ...signatures].join(',');
}
