// The verbs that the platform's resources share: create, list, get, update, delete. A list is read by the page, or as
// one sequence.
import type { z } from 'zod';
import type { DESCRIBED_RESOURCES } from '../wire/operations/operations.ts';
import type { Resource } from '../wire/operations/resource.ts';
import type { keyCreation } from '../wire/resources/key.ts';
import { RESOURCES } from '../wire/routes/routes.ts';
import { type ApiCaller, UnreachableError } from './api-caller.ts';

export interface ResourceOptions {
  signal?: AbortSignal | undefined;
}

/** Returns one page, newest first. */
export interface Listed<Item> {
  /** Yields all records; fetches a page when it is needed. */
  list(options?: ListOptions): AsyncGenerator<Item, void, void>;
  page(options?: PageOptions): Promise<Page<Item>>;
}

export interface Resources<Item, Creation, Change> extends Listed<Item> {
  create(creation: Creation, options?: ResourceOptions): Promise<Item>;
  get(id: string, options?: ResourceOptions): Promise<Item>;
  /** Changes the record; omitted members stay as they are. */
  update(id: string, change: Change, options?: ResourceOptions): Promise<Item>;
  delete(id: string, options?: ResourceOptions): Promise<void>;
}

export function connectList<Item>(source: ListSource): Listed<Item> {
  return {
    list: (options) => readAll<Item>(source, options),
    page: (options) => fetchPage<Item>(source, options),
  };
}

type ResourceDescriptions = typeof DESCRIBED_RESOURCES;
/** Resources that can be changed; they have all five verbs. */
export type ResourceName = {
  [Name in keyof ResourceDescriptions]: ResourceDescriptions[Name] extends Resource ? Name : never;
}[keyof ResourceDescriptions];
/** Record of a resource: `RecordOf<'templates'>`. */
export type RecordOf<Name extends ResourceName> = z.infer<ResourceDescriptions[Name]['record']>;
/** Body that creates a record; members with a default are optional. */
export type CreationOf<Name extends ResourceName> = z.input<
  ResourceDescriptions[Name]['operations']['create']['body']['schema']
>;
/** Body that changes a record; omitted members stay as they are. */
export type ChangeOf<Name extends ResourceName> = z.input<
  ResourceDescriptions[Name]['operations']['update']['body']['schema']
>;
export type ResourcesOf<Name extends ResourceName> = Resources<
  RecordOf<Name>,
  CreationOf<Name>,
  ChangeOf<Name>
>;

/** Builds the five verbs of a described resource. */
export function connectResources<Name extends ResourceName>(
  caller: ApiCaller,
  name: Name,
): ResourcesOf<Name> {
  const { path, plural: member } = RESOURCES[name];
  const pathOf = (id: string) => `${path}/${encodeURIComponent(id)}`;
  return {
    ...connectList<RecordOf<Name>>({ caller, path, member }),
    create: (creation, options) => post(caller, path, { ...options, body: creation }),
    get: (id, { signal } = {}) => caller.json({ path: pathOf(id), signal }),
    update: (id, body, { signal } = {}) =>
      caller.json({ method: 'PATCH', path: pathOf(id), body, signal }),
    delete: (id, options) => remove(caller, pathOf(id), options),
  };
}

/** Not retried without an answer, because the record may exist already. */
export async function post<T>(
  caller: ApiCaller,
  path: string,
  { body, signal }: ResourceOptions & { body: unknown },
): Promise<T> {
  return caller.json<T>({ method: 'POST', path, body, signal, repeatable: false });
}

/** Not retried without an answer, because a second deletion would answer 404. */
export async function remove(
  caller: ApiCaller,
  path: string,
  { signal }: ResourceOptions = {},
): Promise<void> {
  await caller.answer({ method: 'DELETE', path, signal, repeatable: false });
}

export interface PageOptions {
  /** `cursor` of the previous page. Default: the first page. */
  cursor?: string | undefined;
  /** Most records of the page, 1 to 1,000. Default 100. */
  limit?: number | undefined;
  signal?: AbortSignal | undefined;
}

export interface ListOptions {
  /** Records per request, 1 to 1,000. Default 100. */
  pageSize?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Newest first. */
export interface Page<Item> {
  items: Item[];
  /** Cursor of the next page; absent on the last page. */
  cursor?: string;
}

interface ListSource {
  caller: ApiCaller;
  path: string;
  /** Member of the answer that contains the records. */
  member: string;
  /** Query parameters besides cursor and limit. */
  query?: Readonly<Record<string, string | undefined>>;
}

/** Returns the records from the member that the list's description names. */
interface ListAnswer<Item> {
  readonly cursor?: string;
  readonly [member: string]: Item[] | string | undefined;
}

async function fetchPage<Item>(
  { caller, member, path, query }: ListSource,
  { cursor, limit, signal }: PageOptions = {},
): Promise<Page<Item>> {
  const call = { path, query: { ...query, cursor, limit }, signal };
  const answer = await caller.json<ListAnswer<Item>>(call);
  const items = answer[member];
  if (!Array.isArray(items)) throw new UnreachableError(`the response has no list ${member}`);
  return answer.cursor === undefined ? { items } : { items, cursor: answer.cursor };
}

/** Fetches a page when the previous one is used up. */
async function* readAll<Item>(
  source: ListSource,
  { pageSize: limit, signal }: ListOptions = {},
): AsyncGenerator<Item, void, void> {
  let cursor: string | undefined;
  do {
    const page = await fetchPage<Item>(source, { cursor, limit, signal });
    yield* page.items;
    cursor = page.cursor;
  } while (cursor !== undefined);
}

export type NewPod = CreationOf<'pods'>;
export type PodChange = ChangeOf<'pods'>;
export type NewEndpoint = CreationOf<'endpoints'>;
export type EndpointChange = ChangeOf<'endpoints'>;
export type NewTemplate = CreationOf<'templates'>;
export type TemplateChange = ChangeOf<'templates'>;
export type NewKey = z.input<typeof keyCreation>;
