// Names of the webhook headers, and the text that is signed (Standard Webhooks,
// https://www.standardwebhooks.com).

export const WEBHOOK_HEADERS = {
  /** ID of the delivery, the same in every attempt: a receiver uses it to skip repeats. */
  id: 'webhook-id',
  /** Unix seconds of this attempt. */
  timestamp: 'webhook-timestamp',
  /** `v1,<base64>`, one for each valid secret, separated by spaces. */
  signature: 'webhook-signature',
  /** ID of the job's endpoint; it determines the secret. */
  endpoint: 'millrace-endpoint',
  /** Number of this attempt, from 1. */
  attempt: 'millrace-attempt',
} as const;

/** Prefix of the base64 key in an endpoint's secret. */
export const SECRET_PREFIX = 'whsec_';

export const MAX_WEBHOOK_CHARACTERS = 2_048;

/** Checks only the form. Addresses are checked at each call, because names can change. */
export function isWebhookUrl(text: string): boolean {
  const url = text.length > MAX_WEBHOOK_CHARACTERS ? null : URL.parse(text);
  if (url === null || url.username !== '' || url.password !== '') return false;
  return url.protocol === 'http:' || url.protocol === 'https:';
}

/** Prefix of the body in the text that HMAC-SHA-256 signs. */
export function prefixSigned(id: string, seconds: number): string {
  return `${id}.${seconds}.`;
}
