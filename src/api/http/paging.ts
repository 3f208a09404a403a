// Lists in pages: which part a caller wants, and where the next one begins.
import type { FastifyRequest } from 'fastify';
import { LIST_LIMIT } from '../../wire/operations/operation.ts';
import { type QueryValues, readInteger, refuseParameter } from './query.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** Bytes of JSON in one page of a list, at most. */
    listBytes: number;
  }
}

export interface Page {
  /** Only what has a smaller position: lists are newest first. */
  before: number | undefined;
  limit: number;
  maxBytes: number;
}

type PagedRequest = Pick<FastifyRequest<{ Querystring: QueryValues }>, 'query' | 'server'>;

/** Of the query parameters `cursor` and `limit`. @throws ProblemError `invalid` */
export function readPage({ query, server }: PagedRequest): Page {
  return {
    maxBytes: server.listBytes,
    before: readCursor(query),
    limit: readInteger(query, 'limit', LIST_LIMIT) ?? LIST_LIMIT.default,
  };
}

/** The member of an answer that leads to the next page; none on the last. */
export function describeNext(next: number | undefined): { cursor?: string } {
  return next === undefined ? {} : { cursor: encodeCursor(next) };
}

/** The list's place, in a form that nobody computes with. */
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
