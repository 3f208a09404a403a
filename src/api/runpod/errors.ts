// The error format of RunPod's API: JSON with one text, and the few statuses of that API.
import type { ProblemCode } from '../../wire/problem.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import { JSON_MEDIA_TYPE } from '../http/byte-reply.ts';
import type { ErrorForm } from '../http/problem-reply.ts';

/** Codes for which this API has no status of its own. Other codes keep theirs. */
const STATUSES: Partial<Record<ProblemCode, number>> = {
  conflict: 400,
  invalid: 400,
};

export function isBelowRunpod(url: string): boolean {
  return url.startsWith(`${RUNPOD_BASE}/`);
}

export const RUNPOD_ERRORS: ErrorForm = {
  mediaType: JSON_MEDIA_TYPE,
  status: ({ code, status }) => STATUSES[code] ?? status,
  body: ({ message }) => ({ error: message }),
};
