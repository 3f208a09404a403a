// Checks the origins whose pages may call the platform.
import { ANY_ORIGIN, findOriginProblem, MAX_ORIGINS } from '../api/http/cors.ts';
import { PlatformOptionError } from './option-error.ts';
import type { CompleteOptions } from './platform-options.ts';

/** @throws PlatformOptionError */
export function checkCorsOrigins({
  access,
  corsOrigins = [],
}: Pick<CompleteOptions, 'access' | 'corsOrigins'>): void {
  const refuse = (problem: string) => new PlatformOptionError('invalid', 'corsOrigins', problem);
  if (corsOrigins.length > MAX_ORIGINS) {
    throw refuse(`${corsOrigins.length} origins, at most ${MAX_ORIGINS}`);
  }
  const problem = corsOrigins.map(findOriginProblem).find((found) => found !== undefined);
  if (problem !== undefined) throw refuse(problem);
  if (access === 'keys' || !corsOrigins.includes(ANY_ORIGIN)) return;
  throw refuse(
    'calls from this machine need no key, so with * every web page could use the platform; name the origin of your page',
  );
}
