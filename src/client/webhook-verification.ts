// Verifies that a webhook comes from the platform, for programs that receive webhooks. It needs
// only WebCrypto, which every runtime with `fetch` has. The format is Standard Webhooks
// (https://www.standardwebhooks.com).
import type { JobRecord } from '../wire/job/job-records.ts';
import { prefixSigned, SECRET_PREFIX, WEBHOOK_HEADERS } from '../wire/webhook.ts';

export { WEBHOOK_HEADERS };

/** The webhook may be forged, or is too old: answer 400 and do nothing else. */
export class WebhookRefusedError extends Error {
  override readonly name = 'WebhookRefusedError';
}

export interface ReceivedWebhook {
  /** The raw body of the request, before parsing. */
  body: string | Uint8Array;
  /** Headers of the request; as an object, with names in lower case, as in Node. */
  headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>;
  /**
   * The endpoint's secret, as `millrace endpoints webhook-secret` prints it; several during a
   * rotation.
   */
  secret: string | readonly string[];
  /** Largest age of the signature, and largest lead of the sender's clock, ms. Default 300,000. */
  toleranceMs?: number;
  /** Unix ms. Default: now. */
  now?: number;
}

/**
 * @returns the job's record
 * @throws WebhookRefusedError if no signature is valid
 * @throws TypeError if a secret is not one that Millrace printed
 */
export async function verifyWebhook(received: ReceivedWebhook): Promise<JobRecord> {
  const { secret, toleranceMs = 300_000, now = Date.now() } = received;
  const { id, seconds, signatures } = readSignature(received.headers);
  if (Math.abs(now - seconds * 1_000) > toleranceMs) {
    throw new WebhookRefusedError('the webhook was signed too long ago, or clocks differ');
  }
  const encoder = new TextEncoder();
  const body = typeof received.body === 'string' ? encoder.encode(received.body) : received.body;
  const prefix = encoder.encode(prefixSigned(id, seconds));
  const signed = new Uint8Array(prefix.length + body.length);
  signed.set(prefix);
  signed.set(body, prefix.length);
  const secrets = typeof secret === 'string' ? [secret] : secret;
  for (const candidate of secrets) {
    if (await isSignedBy(readKey(candidate), signed, signatures)) return parseRecord(body);
  }
  throw new WebhookRefusedError('the webhook is not signed with this secret');
}

interface Signature {
  id: string;
  seconds: number;
  signatures: Uint8Array[];
}

function readSignature(headers: ReceivedWebhook['headers']): Signature {
  const id = readHeader(headers, WEBHOOK_HEADERS.id);
  const time = readHeader(headers, WEBHOOK_HEADERS.timestamp);
  if (!/^\d{1,12}$/.test(time)) {
    throw new WebhookRefusedError(`the webhook has no valid ${WEBHOOK_HEADERS.timestamp}`);
  }
  // Ignores signatures of unknown versions.
  const signatures = readHeader(headers, WEBHOOK_HEADERS.signature)
    .split(' ')
    .flatMap((part) => {
      const [, base64] = /^v1,([A-Za-z0-9+/]{43}=)$/.exec(part) ?? [];
      return base64 === undefined ? [] : [decodeBase64(base64)];
    });
  if (signatures.length === 0) {
    throw new WebhookRefusedError(`the webhook has no valid ${WEBHOOK_HEADERS.signature}`);
  }
  return { id, seconds: Number(time), signatures };
}

function readHeader(headers: ReceivedWebhook['headers'], name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  const text = typeof value === 'string' ? value : value?.[0];
  if (!text) throw new WebhookRefusedError(`the webhook has no header ${name}`);
  return text;
}

function readKey(secret: string): Uint8Array<ArrayBuffer> {
  const [, key] = /^whsec_([A-Za-z0-9+/]{43}=)$/.exec(secret) ?? [];
  if (key === undefined) {
    throw new TypeError(`secret: expected ${SECRET_PREFIX} and 32 bytes in base64`);
  }
  return decodeBase64(key);
}

function decodeBase64(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Reads the body once, however many signatures the request has. */
async function isSignedBy(
  secret: Uint8Array<ArrayBuffer>,
  signed: Uint8Array<ArrayBuffer>,
  signatures: readonly Uint8Array[],
): Promise<boolean> {
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  const key = await crypto.subtle.importKey('raw', secret, algorithm, false, ['sign']);
  const right = new Uint8Array(await crypto.subtle.sign('HMAC', key, signed));
  return signatures.some((signature) => isSame(signature, right));
}

/** Compares arrays of the same length in constant time. */
function isSame(one: Uint8Array, other: Uint8Array): boolean {
  let difference = 0;
  for (const [at, byte] of one.entries()) difference |= byte ^ (other[at] ?? 0);
  return difference === 0;
}

function parseRecord(body: Uint8Array): JobRecord {
  // The signature is valid, so the platform wrote the body.
  return JSON.parse(new TextDecoder().decode(body)) as JobRecord;
}
