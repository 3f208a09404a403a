// What requests for resources have in common: whose they are, and what their bodies say.
import type { FastifyRequest } from 'fastify';
import type { z } from 'zod';
import { ProblemError } from '../../wire/problem.ts';
import { check, parseJson } from './body.ts';

/** A template with a large environment is far below. */
export const RESOURCE_BODY_BYTES = 1_048_576;

/** Far more than any resource has. */
const RESOURCE_BOUNDS = { maxDepth: 32, maxValues: 10_000 };

const NO_BYTES = Buffer.alloc(0);

/** The user whose key it came with. */
export function readUser({ holder }: Pick<FastifyRequest, 'holder'>): string {
  if (holder) return holder.userId;
  throw new ProblemError('unauthorized', 'no API key: send "Authorization: Bearer <key>"');
}

/** @throws ProblemError `malformed`, `invalid` naming every path */
export function readResource<S extends z.ZodType>(body: Buffer | undefined, schema: S): z.infer<S> {
  return check(parseJson(body ?? NO_BYTES, RESOURCE_BOUNDS), schema);
}
