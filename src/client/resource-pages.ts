// Lists of the service: one page, or all of them as if there were none.
import { type ApiCaller, UnreachableError } from './api-caller.ts';

export interface PageOptions {
  /** `cursor` of the page before. Default: the first page. */
  cursor?: string | undefined;
  /** Records in it at most, 1 to 1,000. Default 100. */
  limit?: number | undefined;
  signal?: AbortSignal | undefined;
}

export interface ListOptions {
  /** Records fetched at a time, 1 to 1,000. Default 100. */
  pageSize?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** Newest first. */
export interface Page<Item> {
  items: Item[];
  /** Of the next page; absent on the last. */
  cursor?: string;
}

export interface ListSource {
  caller: ApiCaller;
  path: string;
  /** The member of an answer that has the records. */
  member: string;
  /** Beside the cursor and the limit. */
  query?: Readonly<Record<string, string | undefined>>;
}

/** Records below the member that the list's description names. */
interface ListAnswer<Item> {
  readonly cursor?: string;
  readonly [member: string]: Item[] | string | undefined;
}

export async function readPage<Item>(
  { caller, member, path, query }: ListSource,
  { cursor, limit, signal }: PageOptions = {},
): Promise<Page<Item>> {
  const call = { path, query: { ...query, cursor, limit }, signal };
  const answer = await caller.json<ListAnswer<Item>>(call);
  const items = answer[member];
  if (!Array.isArray(items)) throw new UnreachableError(`the response has no list ${member}`);
  return answer.cursor === undefined ? { items } : { items, cursor: answer.cursor };
}

/** A page is fetched when the one before has been used up. */
export async function* readAll<Item>(
  source: ListSource,
  { pageSize: limit, signal }: ListOptions = {},
): AsyncGenerator<Item, void, void> {
  let cursor: string | undefined;
  do {
    const page = await readPage<Item>(source, { cursor, limit, signal });
    yield* page.items;
    cursor = page.cursor;
  } while (cursor !== undefined);
}
