// Lists of the service: one page, or all of them as if there were none.
import type { ApiCaller } from './api-caller.ts';

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

export interface ListSource<Answer extends { cursor?: string }, Item> {
  caller: ApiCaller;
  path: string;
  /** Beside the cursor and the limit. */
  query?: Readonly<Record<string, string | undefined>>;
  /** The records of an answer. */
  pick: (answer: Answer) => Item[];
}

export async function readPage<Answer extends { cursor?: string }, Item>(
  { caller, path, pick, query }: ListSource<Answer, Item>,
  { cursor, limit, signal }: PageOptions = {},
): Promise<Page<Item>> {
  const answer = await caller.json<Answer>({ path, query: { ...query, cursor, limit }, signal });
  const items = pick(answer);
  return answer.cursor === undefined ? { items } : { items, cursor: answer.cursor };
}

/** A page is fetched when the one before has been used up. */
export async function* readAll<Answer extends { cursor?: string }, Item>(
  source: ListSource<Answer, Item>,
  { pageSize: limit, signal }: ListOptions = {},
): AsyncGenerator<Item, void, void> {
  let cursor: string | undefined;
  do {
    const page = await readPage(source, { cursor, limit, signal });
    yield* page.items;
    cursor = page.cursor;
  } while (cursor !== undefined);
}
