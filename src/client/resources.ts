// What the resources of the platform have in common: made, read, listed, changed, taken away.
import type { ApiCaller } from './api-caller.ts';
import {
  type ListOptions,
  type ListSource,
  type Page,
  type PageOptions,
  readAll,
  readPage,
} from './resource-pages.ts';

export interface ResourceOptions {
  signal?: AbortSignal | undefined;
}

/** Of one kind; newest first. */
export interface Listed<Item> {
  /** All of them, fetched page by page as they are asked for. */
  list(options?: ListOptions): AsyncGenerator<Item, void, void>;
  page(options?: PageOptions): Promise<Page<Item>>;
}

export interface Resources<Item, Creation, Change> extends Listed<Item> {
  create(creation: Creation, options?: ResourceOptions): Promise<Item>;
  get(id: string, options?: ResourceOptions): Promise<Item>;
  /** What is left out stays. */
  update(id: string, change: Change, options?: ResourceOptions): Promise<Item>;
  delete(id: string, options?: ResourceOptions): Promise<void>;
}

export interface ResourceSource<Answer extends { cursor?: string }, Item>
  extends ListSource<Answer, Item> {
  /** Of the resource with this id, which is taken as it is. */
  pathOf: (id: string) => string;
}

export function connectList<Answer extends { cursor?: string }, Item>(
  source: ListSource<Answer, Item>,
): Listed<Item> {
  return {
    list: (options) => readAll(source, options),
    page: (options) => readPage(source, options),
  };
}

export function connectResources<Answer extends { cursor?: string }, Item, Creation, Change>(
  source: ResourceSource<Answer, Item>,
): Resources<Item, Creation, Change> {
  const { caller, path } = source;
  const pathOf = (id: string) => source.pathOf(encodeURIComponent(id));
  return {
    ...connectList(source),
    create: (creation, options) => post<Item>(caller, path, { ...options, body: creation }),
    get: (id, { signal } = {}) => caller.json<Item>({ path: pathOf(id), signal }),
    update: (id, body, { signal } = {}) =>
      caller.json<Item>({ method: 'PATCH', path: pathOf(id), body, signal }),
    delete: (id, options) => remove(caller, pathOf(id), options),
  };
}

/** Not repeated when no answer came: it may have been done. */
export async function post<T>(
  caller: ApiCaller,
  path: string,
  { body, signal }: ResourceOptions & { body: unknown },
): Promise<T> {
  return caller.json<T>({ method: 'POST', path, body, signal, repeatable: false });
}

/** Not repeated when no answer came: the second would be told that there is none. */
export async function remove(
  caller: ApiCaller,
  path: string,
  { signal }: ResourceOptions = {},
): Promise<void> {
  await caller.answer({ method: 'DELETE', path, signal, repeatable: false });
}
