// Whether a webhook is from the platform: for programs that receive them. On WebCrypto alone, which
// is there in every runtime that has `fetch`.
import type { JobRecord } from '../wire/job.ts';
import { prefixSigned, WEBHOOK_HEADERS } from '../wire/webhook.ts';

export { WEBHOOK_HEADERS };

/** It does not have to be from the platform, or is too old: answer 400 and do nothing else. */
export class WebhookRefusedError extends Error {
  override readonly name = 'WebhookRefusedError';
}

export interface ReceivedWebhook {
  /** The request's body as it came, not parsed. */
  body: string | Uint8Array;
  /** Its header `Millrace-Signature`. */
  signature: string | null | undefined;
  /** Of the endpoint, as `millrace webhook-secret` prints it; several while they are changed. */
  secret: string | readonly string[];
  /** How old it may be, and how far ahead clocks may be, ms. Default 300,000. */
  toleranceMs?: number;
  /** Unix ms. Default: now. */
  now?: number;
}

/** @returns the job's record @throws WebhookRefusedError */
export async function verifyWebhook(received: ReceivedWebhook): Promise<JobRecord> {
  const { secret, toleranceMs = 300_000, now = Date.now() } = received;
  const { seconds, signatures } = readSignature(received.signature);
  if (Math.abs(now - seconds * 1_000) > toleranceMs) {
    throw new WebhookRefusedError('the webhook was signed too long ago, or clocks differ');
  }
  const encoder = new TextEncoder();
  const body = typeof received.body === 'string' ? encoder.encode(received.body) : received.body;
  const prefix = encoder.encode(prefixSigned(seconds));
  const signed = new Uint8Array(prefix.length + body.length);
  signed.set(prefix);
  signed.set(body, prefix.length);
  const secrets = typeof secret === 'string' ? [secret] : secret;
  for (const candidate of secrets) {
    if (await isSignedBy(encoder.encode(candidate), signed, signatures)) return parseRecord(body);
  }
  throw new WebhookRefusedError('the webhook is not signed with this secret');
}

interface Signature {
  seconds: number;
  signatures: Uint8Array[];
}

function readSignature(header: string | null | undefined): Signature {
  const parts = (header ?? '').split(',').map((part) => part.trim());
  const time = parts.find((part) => /^t=\d{1,12}$/.test(part));
  const signatures = parts.flatMap((part) => {
    const [, hex] = /^v1=([0-9a-f]{64})$/.exec(part) ?? [];
    return hex === undefined ? [] : [decodeHex(hex)];
  });
  if (time === undefined || signatures.length === 0) {
    throw new WebhookRefusedError(
      `the webhook has no ${WEBHOOK_HEADERS.signature} that can be read`,
    );
  }
  return { seconds: Number(time.slice(2)), signatures };
}

function decodeHex(hex: string): Uint8Array {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}

/** The body is gone through once, however many signatures a stranger sends with it. */
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

/** Of the same length. Takes as long wherever they differ. */
function isSame(one: Uint8Array, other: Uint8Array): boolean {
  let difference = 0;
  for (const [at, byte] of one.entries()) difference |= byte ^ (other[at] ?? 0);
  return difference === 0;
}

function parseRecord(body: Uint8Array): JobRecord {
  // Signed by the platform, so it is what the platform writes.
  return JSON.parse(new TextDecoder().decode(body)) as JobRecord;
}
