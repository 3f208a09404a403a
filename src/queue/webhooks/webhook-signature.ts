// How webhooks are signed: secrets of endpoints out of those of the platform, and the header.
import { createHmac, type Hmac, randomBytes } from 'node:crypto';
import { prefixSigned } from '../../wire/webhook.ts';

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

/** Signs a body that comes in parts, once with each secret. */
export class WebhookSigner {
  readonly #seconds: number;
  readonly #signatures: readonly Hmac[];

  /** `now` is Unix ms. */
  constructor(secrets: readonly string[], now: number) {
    this.#seconds = Math.floor(now / 1_000);
    this.#signatures = secrets.map((secret) =>
      createHmac('sha256', secret).update(prefixSigned(this.#seconds)),
    );
  }

  update(part: Uint8Array): void {
    for (const signature of this.#signatures) signature.update(part);
  }

  /** The value of the header; the signer is used up. */
  finish(): string {
    const signatures = this.#signatures.map((each) => `v1=${each.digest('hex')}`);
    return [`t=${this.#seconds}`, ...signatures].join(',');
  }
}
