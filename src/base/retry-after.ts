// The Retry-After header of HTTP.

/** 31 years: whatever a server asks for stays a number of ms that can be computed with. */
const MAX_SECONDS = 999_999_999;

/** ms to wait by the header (seconds or a date), or undefined if it says nothing. */
export function readRetryAfterMs(
  header: string | string[] | undefined,
  now: number,
): number | undefined {
  const text = (Array.isArray(header) ? header[0] : header)?.trim();
  if (text === undefined || text === '') return undefined;
  if (/^\d+$/.test(text)) return Math.min(Number(text), MAX_SECONDS) * 1_000;
  const date = Date.parse(text);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
