// A route: method, path and scope of one operation, and which names can stand in a path for an ID. Clients and
// workers load this file, so it loads no zod.

export interface Route<Path extends string = string> {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';
  /** Variable segments have names: `/v2/:endpoint/run`. */
  readonly path: Path;
  readonly access: RouteAccess;
}

type ParameterName<Path extends string> = Path extends `${string}:${infer Name}/${infer Rest}`
  ? Name | ParameterName<Rest>
  : Path extends `${string}:${infer Name}`
    ? Name
    : never;

/** Values of a path's parameters, by name: `{ endpoint: string }`. */
export type PathParameters<Path extends string> = Record<ParameterName<Path>, string>;

/** The path with its parameters, percent-encoded. */
export function fillPath<Path extends string>(
  { path }: { readonly path: Path },
  parameters: PathParameters<Path>,
): string {
  const values = new Map(Object.entries<string>(parameters));
  return path.replace(/:([a-z]+)/g, (_match, name: string) =>
    encodeURIComponent(values.get(name) ?? ''),
  );
}

/** Names of a resource in paths, scopes, quotas and lists. */
export interface ResourceOutline {
  /** Member of the list's answer and quota: `networkVolumes`. The command is `network-volumes`. */
  readonly plural: string;
  /** Kind in the store and schema: `networkVolume`. The path parameter is in lower case. */
  readonly singular: string;
  /** Path of the list; a record's path is one segment longer. */
  readonly path: string;
  /** `<scope>:read` reads them, `<scope>:write` changes them. */
  readonly scope: 'endpoints' | 'pods' | 'keys' | 'jobs';
  /** How many one user may have, by default. */
  readonly quota: number;
}

type OnePath<O extends ResourceOutline> = `${O['path']}/:${Lowercase<O['singular']>}`;

/** The five verbs of a resource. */
export interface ResourceRoutes<O extends ResourceOutline> {
  readonly list: Route<O['path']>;
  readonly create: Route<O['path']>;
  readonly get: Route<OnePath<O>>;
  readonly update: Route<OnePath<O>>;
  readonly delete: Route<OnePath<O>>;
}

export function listResourceRoutes<O extends ResourceOutline>(outline: O): ResourceRoutes<O> {
  const path: O['path'] = outline.path;
  const parameter: Lowercase<O['singular']> = nameParameter(outline);
  const one: OnePath<O> = `${outline.path}/:${parameter}`;
  const reading = { method: 'GET', access: `${outline.scope}:read` } as const;
  const access = `${outline.scope}:write` as const;
  return {
    list: { ...reading, path },
    create: { method: 'POST', path, access },
    get: { ...reading, path: one },
    update: { method: 'PATCH', path: one, access },
    delete: { method: 'DELETE', path: one, access },
  };
}

/** Name of the path parameter that holds an ID of the resource: `networkvolume`. */
export function nameParameter<O extends Pick<ResourceOutline, 'singular'>>({
  singular,
}: O): Lowercase<O['singular']> {
  // The type says what the method does.
  return singular.toLowerCase() as Lowercase<O['singular']>;
}

/** `networkVolumes` as words of a sentence: `network volumes`. */
export function spellName(name: string, separator: ' ' | '-' = ' '): string {
  return name.replaceAll(/[A-Z]/g, (letter) => separator + letter.toLowerCase());
}

export const SCOPES = [
  'jobs:read',
  'jobs:write',
  'endpoints:read',
  'endpoints:write',
  'pods:read',
  'pods:write',
  'keys:read',
  'keys:write',
  'worker',
  'admin',
] as const;
export type Scope = (typeof SCOPES)[number];

/** What a caller of a route needs: a scope, any valid key (`key`), or nothing (`open`). */
export type RouteAccess = Scope | 'key' | 'open';

/** A label of RFC 1123: 1 to 63 small letters, digits and hyphens, with no hyphen at either end. */
const DNS_LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** Generated IDs are never labels, because they contain an underscore: `ep_01912f4e-…`. */
export function isDnsLabel(text: string): boolean {
  return DNS_LABEL.test(text);
}
