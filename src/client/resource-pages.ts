// Reads lists of the platform: one page, or all pages as one sequence.
import { type ApiCaller, UnreachableError } from './api-caller.ts';

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

export interface ListSource {
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

export async function fetchPage<Item>(
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
export async function* readAll<Item>(
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
