// The headers of a webhook, and the signed text: Standard Webhooks (https://www.standardwebhooks.com).

export const WEBHOOK_HEADERS = {
  /** Id of the delivery, the same in every attempt: a receiver uses it to skip what it already has. */
  id: 'webhook-id',
  /** Unix seconds of this attempt. */
  timestamp: 'webhook-timestamp',
  /** `v1,<base64>`, one for each secret in use, separated by spaces. */
  signature: 'webhook-signature',
  /** Id of the endpoint whose job has ended: it decides which secret signs. */
  endpoint: 'millrace-endpoint',
  /** Number of this attempt, from 1. */
  try: 'millrace-try',
  /** Same as `webhook-id`. @deprecated removed with 0.2 */
  delivery: 'millrace-delivery',
  /** `t=<Unix seconds>,v1=<hex>`, signed with the text `whs_<base64url>`. @deprecated removed with 0.2 */
  formerSignature: 'millrace-signature',
} as const;

/** Comes before the base64 of the key in an endpoint's secret. */
export const SECRET_PREFIX = 'whsec_';

export const MAX_WEBHOOK_CHARACTERS = 2_048;

/** Whose addresses may be called is seen when they are: names lead elsewhere from day to day. */
export function isWebhookUrl(text: string): boolean {
  const url = text.length > MAX_WEBHOOK_CHARACTERS ? null : URL.parse(text);
  if (url === null || url.username !== '' || url.password !== '') return false;
  return url.protocol === 'http:' || url.protocol === 'https:';
}

/** Comes before the body in the text that HMAC-SHA-256 signs. */
export function prefixSigned(id: string, seconds: number): string {
  return `${id}.${seconds}.`;
}

/** The same for the former header. */
export function prefixFormerSigned(seconds: number): string {
  return `${seconds}.`;
}
