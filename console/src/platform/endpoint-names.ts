// The names of endpoints, for pages that know only IDs.
import { platform } from './calls.ts';
import { usePolled } from './polling.ts';
import { may } from './session.ts';

const EVERY_MS = 30_000;

/** Returns a function that names an endpoint: by its ID if the key may not read endpoints. */
export function useEndpointNames(): (id: string) => string {
  const { data } = usePolled({
    key: 'endpoint names',
    load: async (signal) => {
      const page = may('endpoints:read')
        ? await platform.endpoints.page({ limit: 1_000, signal })
        : { items: [] };
      return new Map(page.items.map(({ id, name }) => [id, name]));
    },
    everyMs: EVERY_MS,
  });
  return (id) => data?.get(id) ?? id;
}
