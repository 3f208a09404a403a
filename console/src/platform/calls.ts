// The platform's API for the console's pages: the typed client, with the session's cookie instead of a key.
import { ApiCaller, ApiError, UnreachableError } from '../../../src/client/api-caller.ts';
import { createPlatform } from '../../../src/client/platform-client.ts';
import { noteAnswer, noteLoss } from './connection.ts';
import { endSession } from './session.ts';

const READING = new Set(['GET', 'HEAD']);

/** Statuses of a proxy whose platform is down. */
const GATEWAY_ERRORS = new Set([502, 503, 504]);

/** `fetch` with the session, which notes whether the platform answers. */
export async function send(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  // The platform takes changes from its own pages only: another site cannot add this header.
  if (!READING.has(init.method ?? 'GET')) headers.set('Millrace-Console', '1');
  try {
    const response = await fetch(input, {
      ...init,
      headers,
      credentials: 'same-origin',
      cache: 'no-store',
    });
    const isProblem = response.headers.get('content-type')?.startsWith('application/problem+json');
    if (GATEWAY_ERRORS.has(response.status) && !isProblem) noteLoss();
    else noteAnswer();
    if (response.status === 401) endSession('ended');
    return response;
  } catch (error) {
    if (!init.signal?.aborted) noteLoss();
    throw error;
  }
}

// No repetition: pages ask again by themselves, and a loss has to show at once.
const options = { url: location.origin, repeats: 0, fetch: send };

export const caller = new ApiCaller(options);
export const platform = createPlatform(options);

export { ApiError, UnreachableError };
