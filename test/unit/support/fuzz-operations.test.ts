// That the fuzzer leaves no operation out.
import { expect, it } from 'vitest';
import { startPlatform } from '../../support/api/platform.ts';
import { FUZZED_OPERATIONS } from '../../support/fuzz/operations.ts';

it('the fuzzer knows every route that is served', async () => {
  const { routes } = await startPlatform({ engine: 'process' });
  const fuzzed = FUZZED_OPERATIONS.map(({ method, path }) => `${method} ${path}`);
  // HEAD goes without saying where GET is: it is among the methods that requests are bent to.
  const served = routes
    .map(({ method, url }) => `${method} ${url}`)
    .filter((route) => fuzzed.includes(route) || !route.startsWith('HEAD '));
  const isOfWorkers = (route: string) => route.includes(' /lb/');
  expect(fuzzed.filter((route) => !isOfWorkers(route)).toSorted()).toEqual(
    served.filter((route) => !isOfWorkers(route)).toSorted(),
  );
  expect(fuzzed.filter(isOfWorkers)).toContain('POST /lb/:endpoint/*');
});
