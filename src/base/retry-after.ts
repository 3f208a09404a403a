// Parses the Retry-After header of HTTP.

/** 31 years: caps larger values, so that the wait in ms stays a safe integer. */
const MAX_SECONDS = 999_999_999;

/** Returns the wait that the header (seconds or a date) requests, ms; undefined without a valid one. */
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
