// Signs webhooks: derives each endpoint's secret from the platform's secrets and builds the
// signature headers of Standard Webhooks (https://www.standardwebhooks.com).
import { createHmac, type Hmac, randomBytes } from 'node:crypto';
import { prefixSigned, SECRET_PREFIX, WEBHOOK_HEADERS } from '../../wire/webhook.ts';

const PLATFORM_PREFIX = 'mrw_';

/** 256 random bits. */
export function generatePlatformSecret(): string {
  return PLATFORM_PREFIX + randomBytes(32).toString('base64url');
}

export function isPlatformSecret(text: string): boolean {
  return /^mrw_[A-Za-z0-9_-]{43}$/.test(text);
}

/**
 * The secret for receivers of one endpoint: `whsec_` and 32 bytes in base64. The secret does not reveal
 * those of other endpoints, so a receiver cannot forge webhooks for other endpoints.
 */
export function deriveEndpointSecret(platformSecret: string, endpointId: string): string {
  return SECRET_PREFIX + deriveKey(platformSecret, endpointId).toString('base64');
}

function deriveKey(platformSecret: string, endpointId: string): Buffer {
  return createHmac('sha256', platformSecret).update(`webhook:${endpointId}`).digest();
}

export interface SignedMessage {
  /** ID of the delivery, the same in every attempt. */
  id: string;
  endpointId: string;
  /** Unix ms. */
  now: number;
}

/** Signs a body that arrives in parts, once with each secret of the platform. */
export class WebhookSigner {
  readonly #id: string;
  readonly #seconds: number;
  readonly #signatures: readonly Hmac[];

  constructor(platformSecrets: readonly string[], { endpointId, id, now }: SignedMessage) {
    this.#id = id;
    this.#seconds = Math.floor(now / 1_000);
    const keys = platformSecrets.map((secret) => deriveKey(secret, endpointId));
    this.#signatures = keys.map((key) =>
      createHmac('sha256', key).update(prefixSigned(id, this.#seconds)),
    );
  }

  update(part: Uint8Array): void {
    for (const signature of this.#signatures) signature.update(part);
  }

  /** Returns the signature headers; the signer cannot be used again. */
  finish(): Record<string, string> {
    const signatures = this.#signatures.map((each) => `v1,${each.digest('base64')}`);
    return {
      [WEBHOOK_HEADERS.id]: this.#id,
      [WEBHOOK_HEADERS.timestamp]: String(this.#seconds),
      [WEBHOOK_HEADERS.signature]: signatures.join(' '),
    };
  }
}
