// What `millrace jobs show` prints: the record of a job, its times and its input.
import type { Client, JobDetails, JobRecord } from '../../client.ts';

/** A larger input is not printed on request of a person, bytes. */
const MAX_SHOWN = 16_384;

/** Times are ISO 8601. @throws ApiError, UnreachableError */
export async function readDetails(client: Client, job: string): Promise<object> {
  return joinDetails(await client.status(job), await client.details(job));
}

function joinDetails(
  { error, output, progress, waitReason, ...record }: JobRecord,
  { availableAt, endedAt, expiresAt, input, timeline, ...details }: JobDetails,
): object {
  const { queuedAt, startedAt, submittedAt, ...more } = details;
  return {
    ...{ ...more, ...record },
    submittedAt: toIso(submittedAt),
    ...(queuedAt !== submittedAt && { queuedAt: toIso(queuedAt) }),
    ...(availableAt !== undefined && { availableAt: toIso(availableAt) }),
    ...{ startedAt: toIso(startedAt), endedAt: toIso(endedAt), expiresAt: toIso(expiresAt) },
    timeline: timeline.map(({ at, nextAt, ...entry }) => ({
      ...{ at: toIso(at), ...entry },
      ...(nextAt !== undefined && { nextAt: toIso(nextAt) }),
    })),
    ...(waitReason && { waitReason }),
    input,
    ...(progress !== undefined && { progress }),
    ...(output !== undefined && { output }),
    ...(error && { error }),
  };
}

/** For a person: a large input is described by its size. */
export function shortenInput(shown: object): object {
  if (!('input' in shown)) return shown;
  const bytes = Buffer.byteLength(JSON.stringify(shown.input));
  return bytes <= MAX_SHOWN ? shown : { ...shown, input: `(${bytes} bytes; --json prints them)` };
}

function toIso(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}
