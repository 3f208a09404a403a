// Declares an endpoint by its ID.
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import { ProblemError } from '../wire/problem.ts';
import { PlatformOptionError } from './option-error.ts';

/** An existing one keeps its settings, but for `maxAttempts` if it is given. @throws PlatformOptionError */
export async function declare(
  endpoints: Endpoints,
  id: string,
  maxAttempts: number | undefined,
): Promise<void> {
  const known = endpoints.find(id)?.settings;
  const settings = maxAttempts === undefined ? undefined : { ...known, maxAttempts };
  try {
    await endpoints.ensureEndpoint(id, settings);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    throw new PlatformOptionError('invalid', 'endpoints', error.message);
  }
}
