// The resources that the stand-in serves, and their paths.

export interface Resource {
  plural: string;
  kind: string;
  namespaced: boolean;
  /** Its status is written only through `/status`. */
  hasStatus: boolean;
  /** A removal answers with the object instead of a `Status`. */
  returnsRemoved: boolean;
}

const resource = (plural: string, kind: string, part: Partial<Resource> = {}): Resource => ({
  plural,
  kind,
  namespaced: true,
  hasStatus: false,
  returnsRemoved: false,
  ...part,
});

export const NAMESPACES = resource('namespaces', 'Namespace', {
  namespaced: false,
  hasStatus: true,
});

export const PODS = resource('pods', 'Pod', { hasStatus: true, returnsRemoved: true });

/** All of the API group `v1`. */
const RESOURCES: readonly Resource[] = [
  NAMESPACES,
  resource('nodes', 'Node', { namespaced: false, hasStatus: true }),
  PODS,
  resource('persistentvolumeclaims', 'PersistentVolumeClaim', {
    hasStatus: true,
    returnsRemoved: true,
  }),
  resource('secrets', 'Secret'),
  resource('events', 'Event'),
  resource('serviceaccounts', 'ServiceAccount'),
];

export interface ResourcePath {
  resource: Resource;
  namespace: string | undefined;
  name: string | undefined;
  /** Such as `status` or `log`. */
  part: string | undefined;
}

/** Undefined: the API has no such path. */
export function parsePath(pathname: string): ResourcePath | undefined {
  const [, api, version, ...rest] = pathname.split('/').map(decodeURIComponent);
  if (api !== 'api' || version !== 'v1') return undefined;
  const isInNamespace = rest[0] === 'namespaces' && rest.length > 2;
  const namespace = isInNamespace ? rest[1] : undefined;
  const [plural, name, part, ...more] = isInNamespace ? rest.slice(2) : rest;
  const found = RESOURCES.find((each) => each.plural === plural);
  if (!found || more.length > 0) return undefined;
  // A single object of a namespace is named with its namespace.
  if (found.namespaced && namespace === undefined && name !== undefined) return undefined;
  if (!found.namespaced && namespace !== undefined) return undefined;
  return { resource: found, namespace, name, part };
}
