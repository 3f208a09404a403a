// The pages: the path and the module of each. A page is loaded when it is first opened.
import type { ComponentType } from 'preact';

/** Values of the path's `:name` segments, decoded. */
export type Parameters = Readonly<Record<string, string>>;

export interface PageProps {
  parameters: Parameters;
  query: URLSearchParams;
}

export interface PageRoute {
  path: string;
  load: () => Promise<{ Page: ComponentType<PageProps> }>;
}

export const ROUTES: readonly PageRoute[] = [
  { path: '/', load: () => import('../pages/overview.tsx') },
  { path: '/endpoints/:endpoint', load: () => import('../pages/endpoint/state.tsx') },
  { path: '/endpoints/:endpoint/playground', load: () => import('../pages/playground/page.tsx') },
  { path: '/endpoints/:endpoint/jobs', load: () => import('../pages/jobs/page.tsx') },
  { path: '/endpoints/:endpoint/jobs/:job', load: () => import('../pages/job/page.tsx') },
  { path: '/endpoints/:endpoint/flows', load: () => import('../pages/flows/list.tsx') },
  { path: '/endpoints/:endpoint/flows/:flow', load: () => import('../pages/flows/page.tsx') },
  { path: '/endpoints/:endpoint/batches', load: () => import('../pages/batches/list.tsx') },
  { path: '/endpoints/:endpoint/batches/:batch', load: () => import('../pages/batches/page.tsx') },
  { path: '/endpoints/:endpoint/versions', load: () => import('../pages/endpoint/versions.tsx') },
  { path: '/endpoints/:endpoint/settings', load: () => import('../pages/endpoint/settings.tsx') },
  { path: '/failed-jobs', load: () => import('../pages/failed-jobs.tsx') },
  { path: '/batches', load: () => import('../pages/batches/list.tsx') },
  { path: '/schedules', load: () => import('../pages/schedules/page.tsx') },
  { path: '/pods', load: () => import('../pages/pods/list.tsx') },
  { path: '/pods/:pod', load: () => import('../pages/pods/pod.tsx') },
  { path: '/templates', load: () => import('../pages/templates/page.tsx') },
  { path: '/network-volumes', load: () => import('../pages/network-volumes/page.tsx') },
  { path: '/registries', load: () => import('../pages/registries/page.tsx') },
  { path: '/shared-limits', load: () => import('../pages/shared-limits/page.tsx') },
  { path: '/billing', load: () => import('../pages/billing/page.tsx') },
  { path: '/catalog', load: () => import('../pages/catalog/page.tsx') },
  { path: '/limits', load: () => import('../pages/limits/page.tsx') },
  { path: '/gpus', load: () => import('../pages/gpus/page.tsx') },
  { path: '/nodes', load: () => import('../pages/nodes/page.tsx') },
  { path: '/keys', load: () => import('../pages/keys/page.tsx') },
];

const NOT_FOUND: PageRoute = {
  path: '',

  load: () => import('../pages/not-found.tsx'),
};

export function findRoute(path: string): { route: PageRoute; parameters: Parameters } {
  for (const route of ROUTES) {
    const parameters = matchPath(route.path, path);
    if (parameters) return { route, parameters };
  }
  return { route: NOT_FOUND, parameters: {} };
}

function matchPath(pattern: string, path: string): Parameters | undefined {
  const expected = pattern.split('/');
  const found = path.split('/');
  if (expected.length !== found.length) return undefined;
  const parameters: Record<string, string> = {};
  for (const [index, segment] of expected.entries()) {
    const value = found[index] ?? '';
    if (segment.startsWith(':')) parameters[segment.slice(1)] = decode(value);
    else if (segment !== value) return undefined;
  }
  return parameters;
}

/** An address that a person typed may have a `%` without its digits. */
function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
