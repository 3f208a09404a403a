// Reads the user and the body of requests for resources.
import type { FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { ProblemError } from '../../wire/problem.ts';
import { check, parseJson } from '../body/body.ts';

/** Far beyond any valid resource. */
const RESOURCE_BOUNDS = { maxDepth: 32, maxValues: 10_000 };

const NO_BYTES = Buffer.alloc(0);

type HeldRequest = Pick<FastifyRequest, 'holder'>;

/** Returns the holder of the request's key. @throws ProblemError `unauthorized` */
export function requireHolder({ holder }: HeldRequest): KeyHolder {
  if (holder) return holder;
  throw new ProblemError('unauthorized', 'no API key: send "Authorization: Bearer <key>"');
}

/** Returns the user of the request's key. @throws ProblemError `unauthorized` */
export function readUser(request: HeldRequest): string {
  return requireHolder(request).userId;
}

/** @throws ProblemError `malformed`, `invalid` that names every path */
export function readResourceBody<S extends z.ZodType>(
  body: Buffer | undefined,
  schema: S,
): z.infer<S> {
  return check(parseJson(body ?? NO_BYTES, RESOURCE_BOUNDS), schema);
}
