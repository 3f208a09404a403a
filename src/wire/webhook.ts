// What a receiver of webhooks is sent beside the record, and what of it is signed.

export const WEBHOOK_HEADERS = {
  /** The same in every try, so that a receiver can tell what it has had already. */
  delivery: 'millrace-delivery',
  /** Id of the endpoint whose job has ended: it says which secret signs. */
  endpoint: 'millrace-endpoint',
  /** Which try this is, from 1. */
  try: 'millrace-try',
  /** `t=<Unix seconds>,v1=<hex>`, with one `v1` for each secret that is in use. */
  signature: 'millrace-signature',
} as const;

export const MAX_WEBHOOK_CHARACTERS = 2_048;

/** Whose addresses may be called is seen when they are: names lead elsewhere from day to day. */
export function isWebhookUrl(text: string): boolean {
  const url = text.length > MAX_WEBHOOK_CHARACTERS ? null : URL.parse(text);
  if (url === null || url.username !== '' || url.password !== '') return false;
  return url.protocol === 'http:' || url.protocol === 'https:';
}

/** What comes before the body in the text that HMAC-SHA-256 is taken of. */
export function prefixSigned(seconds: number): string {
  return `${seconds}.`;
}
