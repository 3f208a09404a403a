// Reads which page of a list a caller requests, and encodes the cursor of the next page.
import type { FastifyRequest } from 'fastify';
import { LIST_LIMIT } from '../../wire/operations/operation.ts';
import { type QueryValues, readInteger, refuseParameter } from './query.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** Most bytes of JSON in one page of a list. */
    listBytes: number;
  }
}

export interface PageRequest {
  /** Only records with a smaller position: lists are newest first. */
  before: number | undefined;
  limit: number;
  maxBytes: number;
}

type PagedRequest = Pick<FastifyRequest<{ Querystring: QueryValues }>, 'query' | 'server'>;

/** Reads the query parameters `cursor` and `limit`. @throws ProblemError `invalid` */
export function readPageRequest(
  { query, server }: PagedRequest,
  limits: typeof LIST_LIMIT = LIST_LIMIT,
): PageRequest {
  return {
    maxBytes: server.listBytes,
    before: readCursor(query),
    limit: readInteger(query, 'limit', limits) ?? limits.default,
  };
}

/** The `cursor` member of a response; absent on the last page. */
export function describeNext(next: number | undefined): { cursor?: string } {
  return next === undefined ? {} : { cursor: encodeCursor(next) };
}

/** The position as an opaque text. */
function encodeCursor(position: number): string {
  return Buffer.from(String(position)).toString('base64url');
}

function readCursor(query: QueryValues): number | undefined {
  const text = query['cursor'];
  if (text === undefined) return undefined;
  const decoded = typeof text === 'string' ? Buffer.from(text, 'base64url').toString('latin1') : '';
  if (/^\d{1,16}$/.test(decoded)) return Number(decoded);
  throw refuseParameter('cursor', 'must be the cursor of an earlier response');
}
