// The five verbs that the platform's resources share: create, list, get, update, delete.
import type { z } from 'zod';
import type { DESCRIBED_RESOURCES } from '../wire/operations/operations.ts';
import type { Resource } from '../wire/operations/resource.ts';
import { RESOURCES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import {
  fetchPage,
  type ListOptions,
  type ListSource,
  type Page,
  type PageOptions,
  readAll,
} from './resource-pages.ts';

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
